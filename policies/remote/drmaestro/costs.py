"""What tasks need and what it costs to place them or not (thesis section 5.3, eqs. 11-13)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from policies.remote.capacity import NodeCapacity
from policies.remote.jobs import RemoteJob

#: Costs are integers: thousandths of the cost of one remote GPU on an idle network.
SCALE = 1000

#: (job's index, task's index).
TaskId = tuple[int, int]
#: What a task needs: CPUs, memory, GPUs, sensitivity, whether GPUs may be remote.
TaskKind = tuple[int, int, int, float, bool]


@dataclass(frozen=True, slots=True)
class Costs:
    """Eqs. 11-13 as used here: a local GPU costs nothing, a remote one `remote`.

    With `network_aware` a remote GPU costs, on top, the job's sensitivity times the load of
    the donor's network in [0, 1] times `network`. A GPU left unscheduled costs `unscheduled`
    and `waiting` more for every round waited (W of eq. 13).
    """

    remote: float = 1.0
    network: float = 10.0
    unscheduled: float = 20.0
    waiting: float = 1.0
    network_aware: bool = False
    loads: Mapping[str, float] = field(default_factory=dict)

    def remote_gpu(self, sensitivity: float, donor: str) -> int:
        """The cost of one GPU of that donor."""
        load = self.loads.get(donor, 0.0) if self.network_aware else 0.0
        return round(SCALE * (self.remote + self.network * sensitivity * load))

    def leave(self, job: RemoteJob) -> int:
        """The cost of one GPU, or one task, that stays unscheduled."""
        return round(SCALE * (self.unscheduled + self.waiting * job.rounds_waited))


def kind(job: RemoteJob, task: int) -> TaskKind:
    """What one task of a job needs."""
    gpus = job.request.gpus_per_node[task]
    return (job.cpus, job.memory_mb, gpus, job.sensitivity, job.remote_allowed)


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
