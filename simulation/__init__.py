"""Replaces Slurm and the clock; imports the same policies the engine runs."""
