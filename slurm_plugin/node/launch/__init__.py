"""The last step: a task's GPUs in rank order, beside its CPUs, memory and NIC.

`write` makes the table of a node, which the SPANK plugin and the TaskProlog script read there.
"""

from slurm_plugin.node.launch.machine import LaunchMachine, machine_of
from slurm_plugin.node.launch.table import write

__all__ = ["LaunchMachine", "machine_of", "write"]
