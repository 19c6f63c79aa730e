"""Slurm's own files about hardware.

`gres_file` writes and reads gres.conf, `mapping` tells which GPU of a topology Slurm's index
means, `network` reads topology.conf.
"""
