"""Slurm behind one narrow interface: what the engine and the commands may ask of it."""

from slurm_plugin.slurm.commands import CommandLine
from slurm_plugin.slurm.interface import SlurmClient, SlurmJob, SlurmNode, SlurmPartition

__all__ = ["CommandLine", "SlurmClient", "SlurmJob", "SlurmNode", "SlurmPartition"]
