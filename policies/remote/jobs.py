"""What a job with GPUs on other nodes asks and gets; shared by the R queue and DRMaestro.

A job is made of tasks, one process each. A task has one node for its CPUs and memory; its GPUs
are on that node (local), or on other nodes and used over the network (remote). The nodes of
remote GPUs are the job's donors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from policies.contract.bits import mask_of
from policies.contract.nouns import Request, Wait


@dataclass(frozen=True, slots=True)
class RemoteJob:
    """A waiting job; `cpus` and `memory_mb` are what one task needs on its node."""

    #: `request.gpus_per_node` holds the GPUs of each task, one entry per task.
    request: Request
    cpus: int = 1
    memory_mb: int = 0
    #: Decisions that left it waiting, and those among them that did so because of the network.
    rounds_waited: int = 0
    postponed: int = 0
    #: The share by which a fully loaded network lengthens it (0.17: 17 %).
    sensitivity: float = 0.0
    #: The execution time, over that on local GPUs, that it still accepts.
    max_slowdown: float = float("inf")
    remote_allowed: bool = True
    #: The nodes on which its tasks may run; empty: on any. Others may still lend.
    hosts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RemoteTask:
    """Where one task runs: its node, its GPUs there, and (donor, GPU) for each remote one."""

    node: str
    local: tuple[int, ...] = ()
    remote: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RemotePlacement:
    """The answer for one job: a place for each of its tasks, in their order, and why."""

    tasks: tuple[RemoteTask, ...]
    policy: str
    reason: str

    @property
    def remote_gpus(self) -> int:
        """How many GPUs it uses over the network."""
        return sum(len(task.remote) for task in self.tasks)

    @property
    def donors(self) -> Mapping[str, int]:
        """Donor -> mask of the GPUs that it lends."""
        gpus: dict[str, list[int]] = {}
        for task in self.tasks:
            for name, gpu in task.remote:
                gpus.setdefault(name, []).append(gpu)
        return {name: mask_of(gpus[name]) for name in sorted(gpus)}


Answer = RemotePlacement | Wait
