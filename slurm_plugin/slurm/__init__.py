"""Slurm behind one narrow interface: what the engine and the commands may ask of it."""

from slurm_plugin.slurm.clients.command_line import CommandLine
from slurm_plugin.slurm.interface import (
    NOW,
    JobUpdate,
    QueuedJob,
    SlurmClient,
    SlurmJob,
    SlurmNode,
    SlurmPartition,
)

__all__ = [
    "NOW",
    "CommandLine",
    "JobUpdate",
    "QueuedJob",
    "SlurmClient",
    "SlurmJob",
    "SlurmNode",
    "SlurmPartition",
]
