"""The last step: a task's GPUs in rank order, beside its CPUs, memory and NIC.

`plan.launch` is the rule, `table.write` its answers for a node. The SPANK plugin and the
TaskProlog script read that table, and their tests compare them with the rule.
"""

from slurm_plugin.launch.machine import LaunchMachine, machine_of
from slurm_plugin.launch.plan import Launch, Task, launch
from slurm_plugin.launch.table import write

__all__ = ["Launch", "LaunchMachine", "Task", "launch", "machine_of", "write"]
