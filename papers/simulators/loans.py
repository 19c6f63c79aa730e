"""Jobs that may run with GPUs of other nodes: what each takes of the nodes, and who is where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from policies.remote import NodeCapacity, RemoteJob, RemotePlacement
from simulation.core.clock import JobProgress


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a job; `alone_s` is its time on local GPUs beside nobody."""

    wait_s: float
    execution_s: float
    alone_s: float
    remote_gpus: int

    @property
    def life_s(self) -> float:
        """Wait and execution (Markthub et al., eq. 7)."""
        return self.wait_s + self.execution_s


@dataclass(slots=True)
class NodeShare:
    """What one job takes of one node; `has_task` where a task of it runs there."""

    gpus: int = 0  # mask
    cpus: float = 0.0
    memory_mb: float = 0.0
    has_task: bool = False


@dataclass(slots=True, kw_only=True)
class RunningLoan(JobProgress):
    """A running job: its number in the log, its GPUs, and what it takes by node."""

    number: int
    placement: RemotePlacement
    taken: Mapping[str, NodeShare]
    crowd: int = 0  # jobs on its fullest node when its speed was set, where that matters


R = TypeVar("R", bound=RunningLoan)


class LoanNodes(Generic[R]):
    """What is free of every node, and the jobs that run on it or borrow from it.

    `jobs` counts those by node, `hosted` only the jobs that have a task on the node.
    """

    def __init__(self, free: dict[str, NodeCapacity]) -> None:
        self.free = free
        self.jobs = dict.fromkeys(free, 0)
        self.hosted = dict.fromkeys(free, 0)
        self._on: dict[str, dict[int, R]] = {name: {} for name in free}

    def take(self, running: R) -> None:
        """The job has its GPUs from now on."""
        self._move(running, 1)
        for name in running.taken:
            self._on[name][running.number] = running

    def give_back(self, running: R) -> None:
        """The job's GPUs are free again."""
        self._move(running, -1)
        for name in running.taken:
            del self._on[name][running.number]

    def jobs_on(self, names: Iterable[str]) -> list[R]:
        """The jobs on any of these nodes, in the order of their numbers."""
        by_number: dict[int, R] = {}
        for name in names:
            by_number |= self._on[name]
        return [by_number[number] for number in sorted(by_number)]

    def taken(self, job: RemoteJob, placement: RemotePlacement) -> dict[str, NodeShare]:
        """What the placement needs, by node."""
        taken: dict[str, NodeShare] = {}
        for task in placement.tasks:
            here = taken.setdefault(task.node, NodeShare())
            here.has_task = True
            here.cpus += job.cpus
            here.memory_mb += job.memory_mb
            for gpu in task.local:
                here.gpus |= 1 << gpu
            for name, gpu in task.remote:
                there = taken.setdefault(name, NodeShare())
                there.gpus |= 1 << gpu
                there.cpus += self.free[name].donor_cpus
                there.memory_mb += self.free[name].donor_memory_mb
        return taken

    def _move(self, running: R, sign: int) -> None:
        for name, taken in running.taken.items():
            room = self.free[name]
            room.free ^= taken.gpus
            room.cpus -= sign * taken.cpus
            room.memory_mb -= sign * taken.memory_mb
            self.jobs[name] += sign
            self.hosted[name] += sign * taken.has_task
