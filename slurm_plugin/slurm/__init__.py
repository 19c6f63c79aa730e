"""Slurm behind one narrow interface: `interface` has its nouns, `clients` who asks it."""
