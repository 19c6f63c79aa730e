"""Slurm's queue as the scheduler of one shaped partition sees it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from policies.contract.scheduling import Planned, Queue, Scheduler, Started, Task
from policies.errors import PolicyError
from policies.performance import Shape
from slurm_plugin.act.gates.released import about_to_run
from slurm_plugin.act.genie.site import ShapedPartition
from slurm_plugin.base.job_notes.shape import ShapeNote, shape_note_in
from slurm_plugin.queue.capacity import is_open
from slurm_plugin.queue.demand import lacks_only_room
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode

#: A job that ends gives its GPUs back node by node. For this many seconds no job is started on
#: those that are back already.
COMPLETING_S = 5


@dataclass(frozen=True, slots=True)
class Member:
    """One shaped job that waits, and its task."""

    job: QueuedJob
    said: ShapeNote
    task: Task


@dataclass(frozen=True, slots=True)
class ShapePromise:
    """A submit that no poll has seen as a job yet; `nodes`: where it is about to start."""

    uid: int
    hint: str
    task: Task
    shape: Shape
    nodes: tuple[str, ...]
    until: float


@dataclass(slots=True)
class DomainSnapshot:
    """One domain at one moment; `is_settling`: a job's GPUs are only partly back."""

    domain: ShapedPartition
    at: float = float("-inf")
    free: dict[str, int] = field(default_factory=dict)
    members: list[Member] = field(default_factory=list)
    running: list[Started] = field(default_factory=list)
    unshaped: list[tuple[QueuedJob, ShapeNote]] = field(default_factory=list)
    is_settling: bool = False

    def queue(
        self,
        now: float,
        promises: Sequence[ShapePromise] = (),
        starting: Mapping[int, Planned] = MappingProxyType({}),
        stalled: Container[int] = (),
        more: Sequence[Task] = (),
    ) -> Queue:
        """What the scheduler is asked: the snapshot, with what was promised since.

        Jobs that are `starting` have their GPUs already, those `stalled` are left out.
        """
        ids = {member.task.job_id for member in self.members}
        taken = [one for job_id, one in starting.items() if job_id in ids]
        waiting = [
            member.task
            for member in self.members
            if member.task.job_id not in starting and member.task.job_id not in stalled
        ]
        for promise in promises:
            one = Planned(promise.task, promise.shape, 0.0, promise.nodes)
            if promise.nodes:
                taken.append(one)
            else:
                waiting.append(promise.task)
        free = dict(self.free)
        running = list(self.running)
        for one in taken:
            for name in one.nodes:
                free[name] = max(0, free.get(name, 0) - one.shape.gpus_per_node)
            end = now + float(one.task.latency_s[self.domain.platform.index(one.shape)])
            running.append(Started(one.task.job_id, one.task.profile, one.shape, end))
        return Queue(now, self.domain.platform, free, (*waiting, *more), tuple(running))


def planned(
    scheduler: Scheduler,
    queue: Queue,
    starting: Iterable[Planned] = (),
    *,
    is_settling: bool = False,
) -> dict[int, tuple[int, Planned]]:
    """By job id: its place in the order, and its plan. Jobs that start now go first.

    Slurm goes by this order alone, and a job that does not fit must hold up none behind it.
    `starting` are those that were let start before and have not begun yet.
    """
    made = scheduler.plan(queue)
    if is_settling:
        made = [Planned(one.task, one.shape, one.allowance_s) for one in made]
    ordered = [*starting, *sorted(made, key=lambda one: not one.nodes)]
    return {one.task.job_id: (at, one) for at, one in enumerate(ordered)}


#: A task for a waiting or running job; None where its hint says nothing of use any more.
TaskOf = Callable[[QueuedJob, ShapeNote, ShapedPartition], Task | None]


def domain_snapshot(
    domain: ShapedPartition,
    jobs: Iterable[QueuedJob],
    nodes: Iterable[SlurmNode],
    now: float,
    task_of: TaskOf,
    is_ours: Callable[[QueuedJob], bool] = lambda _: False,
) -> DomainSnapshot:
    """The domain's part of what Slurm says. `is_ours`: does a job wait by our own word alone?"""
    names = frozenset(domain.rule.nodes)
    jobs = [_under_way(job, now) for job in jobs]
    snapshot = DomainSnapshot(domain, now, _free(domain, names, nodes, jobs))
    for job in jobs:
        said = shape_note_in(job.admin_comment)
        if job.state == "COMPLETING" and names.intersection(job.nodes):
            snapshot.is_settling |= now - job.end < COMPLETING_S
        if said is None or job.partition != domain.name:
            continue
        if job.state == "PENDING":
            if said.shape is None:
                snapshot.unshaped.append((job, said))
                continue
            task = task_of(job, said, domain) if _is_ready(job, is_ours(job)) else None
            if task is not None:
                snapshot.members.append(Member(job, said, task))
        elif job.state == "RUNNING":
            task = task_of(job, said, domain)
            if task is not None:
                snapshot.running.append(_started(domain, job, said, task))
    return snapshot


def _is_ready(job: QueuedJob, is_ours: bool) -> bool:
    """Would the job start if only it had GPUs?"""
    if job.held or job.depends:
        return False
    # With other reasons any GPUs that it gets would be idle.
    return is_ours or lacks_only_room(job, "ReqNodeNotAvail", "NodeDown")


def _under_way(job: QueuedJob, now: float) -> QueuedJob:
    """The job; one that is about to run as if it had begun now."""
    begun = about_to_run(job)
    return job if begun is job else replace(begun, start=int(now))


def _free(
    domain: ShapedPartition,
    names: frozenset[str],
    nodes: Iterable[SlurmNode],
    jobs: Iterable[QueuedJob],
) -> dict[str, int]:
    """GPUs free on each node of the domain; none on one that takes no jobs.

    A job that ended between the reading of the queue and that of the nodes still runs here, and so
    its GPUs are not free, either: a plan that has them twice would start other jobs than the next.
    Those of a job that is about to run are taken, though Slurm does not count them yet.
    """
    taken: dict[str, set[int]] = {name: set() for name in names}
    for job in jobs:
        for name in taken.keys() & job.gpus.keys() if job.state == "RUNNING" else ():
            taken[name].update(job.gpus[name])
    free = dict.fromkeys(sorted(names), 0)
    for node in nodes:
        if node.name in names and is_open(node):
            used = len(taken[node.name].union(node.used))
            left = node.gpu_count - max(used, sum(node.used_by_type.values()))
            free[node.name] = max(0, min(left, domain.platform.gpus_per_node))
    return free


def _started(domain: ShapedPartition, job: QueuedJob, said: ShapeNote, task: Task) -> Started:
    shape = shape_of([len(gpus) for gpus in job.gpus.values()]) or said.shape or task.requested
    try:
        latency = float(task.latency_s[domain.platform.index(shape)])
    except PolicyError:  # the user's own doing, beyond the platform
        latency = float("inf")
    seconds = latency if latency < float("inf") else float(job.time_limit_s or 0)
    return Started(job.job_id, task.profile, shape, job.start + seconds)


def shape_of(counts: Sequence[int]) -> Shape | None:
    """The shape of so many GPUs on each node; None where there are none, or not as many on each."""
    is_shape = len(set(counts)) == 1 and counts[0] > 0
    return Shape(len(counts), counts[0]) if is_shape else None
