"""Slurm's own files about hardware: gres.conf, its GPU numbers, topology.conf."""
