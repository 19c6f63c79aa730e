"""What a launch gives one task: the C plugin and the TaskProlog are compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_plugin.node.launch.machine import LaunchMachine


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a step on one node, in Slurm's words."""

    gpus: tuple[int, ...]  # the step's on this node, Slurm's indices
    own: tuple[int, ...]  # those of them that Slurm gives this task
    tasks: int = 1
    local_rank: int = 0
    gpus_per_task: int = 0  # 0: the tasks share all
    is_chosen: bool = False  # --gpu-bind chose `own`
    is_relative: bool = False  # the visible devices count the step's GPUs
    cpus: tuple[int, ...] = ()  # those that the task may use
    cpus_per_task: int = 0
    is_cpu_bound: bool = False  # by Slurm or the user
    is_memory_bound: bool = False
    memory_mb: int = 0  # the job's on this node, 0: unknown


@dataclass(frozen=True, slots=True)
class Launch:
    """What a task gets."""

    gpus: tuple[int, ...]  # in rank order, Slurm's indices
    visible: tuple[int, ...]  # their numbers in CUDA or ROCr
    cpus: tuple[int, ...] | None = None  # None: affinity stays as it is
    numa: tuple[int, ...] | None = None  # the nodes of the memory policy; None: it stays
    memory: str = "none"
    nics: tuple[str, ...] = ()  # the nearest; () where none are named


def launch(
    machine: LaunchMachine,
    task: Task,
    pattern: str = "ring",
    memory: str = "preferred",
) -> Launch:
    """The rule. `task` is valid: its GPUs are the machine's, `own` are among `gpus`."""
    gpus = _gpus(machine, task, pattern)
    numa, mode = (None, "none") if task.is_memory_bound else _memory(machine, task, gpus, memory)
    return Launch(
        gpus=gpus,
        visible=_visible(machine, task, gpus),
        cpus=_cpus(machine, task, gpus),
        numa=numa,
        memory=mode,
        nics=_nics(machine, gpus),
    )


def _gpus(machine: LaunchMachine, task: Task, pattern: str) -> tuple[int, ...]:
    """The task's own GPUs: those Slurm gave it, or its share of the whole in rank order."""
    if task.is_chosen:
        return task.own
    share = task.gpus_per_task
    may_divide = not (task.is_cpu_bound or task.is_relative)
    if share and may_divide and share * task.tasks == len(task.gpus):
        first = task.local_rank * share
        return machine.order(pattern, task.gpus)[first : first + share]
    return machine.order(pattern, task.own)


def _visible(machine: LaunchMachine, task: Task, gpus: Sequence[int]) -> tuple[int, ...]:
    """What CUDA or ROCr calls them: counted over the node, or over what is not hidden."""
    names = [machine.devices[gpu] for gpu in gpus]
    if not task.is_relative:
        return tuple(names)
    seen = sorted(machine.devices[gpu] for gpu in task.gpus)
    return tuple(seen.index(name) for name in names)


def _shared_numa(machine: LaunchMachine, gpus: Sequence[int]) -> int | None:
    nodes = {machine.numa[gpu] for gpu in gpus}
    return nodes.pop() if len(nodes) == 1 else None


def _cpus(machine: LaunchMachine, task: Task, gpus: Sequence[int]) -> tuple[int, ...] | None:
    """The NUMA node's CPUs among the task's, unless that takes away what it asked for."""
    numa = _shared_numa(machine, gpus)
    if numa is None or task.is_cpu_bound:
        return None
    left = tuple(cpu for cpu in task.cpus if cpu in set(machine.numa_cpus.get(numa, ())))
    if not left or len(left) < task.cpus_per_task or left == task.cpus:
        return None
    return left


def _memory(
    machine: LaunchMachine, task: Task, gpus: Sequence[int], memory: str
) -> tuple[tuple[int, ...] | None, str]:
    """NUMA nodes and mode; strict only where the job's memory fits the node."""
    if memory == "interleave":
        nodes = {machine.numa[gpu] for gpu in gpus}
        known = sorted(node for node in nodes if node is not None)
        return (tuple(known), memory) if len(known) == len(nodes) else (None, "none")
    numa = _shared_numa(machine, gpus)
    if memory == "none" or numa is None:
        return None, "none"
    fits = 0 < task.memory_mb <= machine.numa_memory_mb.get(numa, 0)
    return (numa,), "bind" if memory == "bind" and fits else "preferred"


def _nics(machine: LaunchMachine, gpus: Sequence[int]) -> tuple[str, ...]:
    """The nearest NICs in rank order, unless a GPU has none or all would be named."""
    if not all(machine.nics[gpu] for gpu in gpus):
        return ()
    found = tuple(dict.fromkeys(nic for gpu in gpus for nic in machine.nics[gpu]))
    every = {nic for nics in machine.nics for nic in nics}
    return () if set(found) == every else found
