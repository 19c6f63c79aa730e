"""What tasks need and what it costs to place them or not (thesis section 5.3, eqs. 11-13)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from policies.remote.capacity import NodeCapacity
from policies.remote.jobs import RemoteJob

#: Costs are integers: thousandths of what a local GPU costs a job that has no goal.
SCALE = 1000

#: (job's index, task's index).
TaskId = tuple[int, int]


class NetworkNeed(NamedTuple):
    """All of a job that decides what a remote GPU costs it."""

    #: The share by which a fully loaded network lengthens the job.
    sensitivity: float
    #: The goal: execution time over that alone on local GPUs; infinity where there is none.
    goal: float


#: What a task needs: CPUs, memory, GPUs, network, whether GPUs may be remote.
TaskKind = tuple[int, int, int, NetworkNeed, bool]


def utility(slowdown: float, goal: float, importance: float = 1.0) -> float:
    """Eq. 11: at most 1, negative where the goal is missed.

    `slowdown` is the expected completion time and `goal` the one asked for, both over the time
    alone on local GPUs. `importance` is z from 1 (a missed goal counts in full) to 10 (not at all).
    A job without a goal is measured by its time alone.
    """
    goal = 1.0 if math.isinf(goal) else goal
    value = (goal - slowdown) / goal
    return value if value >= 0 else value * (10 - importance) / 9


@dataclass(frozen=True, slots=True)
class Costs:
    """Eqs. 12 and 13: (1 - utility) x preference, and W more for a GPU that is left unscheduled.

    The thesis prints no preferences. Here a GPU beside its task is preferred to a remote one, and
    that to none.
    """

    #: Preferences: the task's own machine, any other, and being left unscheduled (with utility 0).
    local: float = 1.0
    remote: float = 2.0
    unscheduled: float = 20.0
    #: W of eq. 13 for every round that the job has waited.
    waiting: float = 1.0
    #: z of eq. 11.
    importance: float = 1.0
    #: Whether the expected completion time takes the load of the donor's network, in [0, 1].
    network_aware: bool = False
    loads: Mapping[str, float] = field(default_factory=dict)

    def local_gpu(self, network: NetworkNeed) -> int:
        """The cost of one GPU beside its task."""
        return self._cost(self.local, 1.0, network.goal)

    def remote_gpu(self, network: NetworkNeed, donor: str) -> int:
        """The cost of one GPU of that donor."""
        load = self.loads.get(donor, 0.0) if self.network_aware else 0.0
        return self._cost(self.remote, 1.0 + network.sensitivity * load, network.goal)

    def leave(self, job: RemoteJob) -> int:
        """The cost of one GPU, or one task, that stays unscheduled."""
        return round(SCALE * (self.unscheduled + self.waiting * job.rounds_waited))

    def _cost(self, preference: float, slowdown: float, goal: float) -> int:
        return round(SCALE * preference * (1.0 - utility(slowdown, goal, self.importance)))


def network_need(job: RemoteJob) -> NetworkNeed:
    """How the job feels the network, and the goal it is held against."""
    return NetworkNeed(job.sensitivity, job.max_slowdown)


def kind(job: RemoteJob, task: int) -> TaskKind:
    """What one task of a job needs."""
    gpus = job.request.gpus_per_node[task]
    return (job.cpus, job.memory_mb, gpus, network_need(job), job.remote_allowed)


def tasks_of(jobs: Mapping[int, RemoteJob]) -> dict[TaskKind, list[TaskId]]:
    """All tasks by what they need, jobs in the order given."""
    tasks: dict[TaskKind, list[TaskId]] = {}
    for index, job in jobs.items():
        for task in range(len(job.request.gpus_per_node)):
            tasks.setdefault(kind(job, task), []).append((index, task))
    return tasks


def holds(node: NodeCapacity, need: TaskKind, most: int) -> int:
    """How many tasks of that kind have their CPUs and memory there, at most `most`."""
    cpus, memory_mb = need[:2]
    if node.cpus < cpus or node.memory_mb < memory_mb:
        return 0
    if cpus and node.cpus // cpus < most:
        most = int(node.cpus // cpus)
    if memory_mb and node.memory_mb // memory_mb < most:
        most = int(node.memory_mb // memory_mb)
    return max(0, most)
