"""The order of the queue: strict first in, first out, or EASY backfill (Lifka 1995).

EASY promises the first job that does not fit the nodes on which it fits earliest, by the
walltimes of what runs. Later jobs may start now if they end before that or use other nodes. In
both orders a job that its policy lets wait is passed, as in live Slurm. On top of either, shorter
work may pass within a bound (policies/order/passing.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from policies.order.passing import Passing
from simulation.core.jobs import SimJob
from simulation.core.occupancy import FreeCounts, Occupancy
from simulation.core.record import Running


@dataclass(slots=True)
class PassingQueue:
    """Who passes whom in a simulated queue; told of every submit, start and end."""

    rule: Passing = field(default_factory=Passing)
    #: Job -> its place in the order of arrival, until it ends.
    _place: dict[int, int] = field(default_factory=dict)
    #: Jobs that may start before the first in line, in this pass; and those that did, and run.
    _may_start: set[int] = field(default_factory=set)
    _passed: set[int] = field(default_factory=set)
    #: Job -> for how long it waited since it could have started but for those that had passed it.
    held_up_s: dict[int, float] = field(default_factory=dict)
    _submits: int = 0

    def submitted(self, job: SimJob) -> None:
        """A job waits from now on."""
        self._submits += 1
        self._place[job.job_id] = self._submits
        self.rule.submitted(job.job_id, job.known)

    def started(self, job: SimJob, now_s: float) -> None:
        """Told by the simulator when the job starts, at `now_s` of its clock."""
        passed = job.job_id in self._may_start
        self.held_up_s[job.job_id] = self.rule.held_up_s(job.job_id, now_s)
        self.rule.started(job.job_id, now_s, passed)
        if passed:
            self._passed.add(job.job_id)

    def ended(self, job: SimJob, now_s: float) -> None:
        """Told by the simulator when the job ends, at `now_s` of its clock."""
        self.rule.ended(job.job_id, now_s)
        self._passed.discard(job.job_id)
        del self._place[job.job_id]

    def before(
        self,
        first: SimJob,
        behind: Iterable[SimJob],
        cluster: Occupancy,
        running: Iterable[Running],
        now_s: float,
    ) -> list[SimJob]:
        """Those behind the first in line, which does not fit, that may start before it now."""
        free = dict(cluster.free)
        for run in running:
            passed = run.job.job_id in self._passed
            if passed and self._place[run.job.job_id] > self._place[first.job_id]:
                for name, mask in run.masks.items():
                    free[name] += mask.bit_count()
        could_start = FreeCounts(free.values()).fits(first.gpus_per_node)
        due_s = self.rule.due_s(first.job_id, could_start, now_s)
        jobs = {job.job_id: job for job in behind if cluster.counts.fits(job.gpus_per_node)}
        chosen = self.rule.may_pass(due_s, jobs, now_s)
        self._may_start = set(chosen)
        return [jobs[job_id] for job_id in chosen]


def in_turn(
    jobs: Iterable[SimJob],
    cluster: Occupancy,
    running: Iterable[Running],
    now_s: float,
    ideal_s: Callable[[SimJob], float],
    *,
    easy: bool,
    passing: PassingQueue | None = None,
) -> Iterator[tuple[SimJob, frozenset[str]]]:
    """Those of the queued jobs that fit, one by one, and the nodes each may not use.

    The caller starts a job, or lets it wait, before it takes the next. `ideal_s` gives the run
    time to plan with for a job that has no walltime.
    """
    jobs = iter(jobs)
    for job in jobs:
        if cluster.counts.fits(job.gpus_per_node):
            yield job, frozenset()
            continue
        behind = list(jobs) if easy or passing is not None else []
        for later in (
            [] if passing is None else passing.before(job, behind, cluster, running, now_s)
        ):
            if cluster.counts.fits(later.gpus_per_node):
                yield later, frozenset()
                behind.remove(later)
        if not easy:
            return
        start_s, promised = _promise(job, cluster, running, now_s)
        for later in behind:
            walltime = ideal_s(later) if later.walltime_s is None else later.walltime_s
            reserved = promised if now_s + walltime > start_s else frozenset()
            if not cluster.counts.fits(later.gpus_per_node):
                continue
            if not reserved or _counts_without(cluster, reserved).fits(later.gpus_per_node):
                yield later, reserved


def _counts_without(cluster: Occupancy, names: frozenset[str]) -> FreeCounts:
    return FreeCounts(free for name, free in cluster.free.items() if name not in names)


def _promise(
    job: SimJob, cluster: Occupancy, running: Iterable[Running], now_s: float
) -> tuple[float, frozenset[str]]:
    """When the job will fit at the latest, and the nodes it will have then.

    By planned ends: a job that outlives its walltime is taken to end now.
    """
    free = dict(cluster.free)
    counts = FreeCounts(free.values())
    at_s = now_s
    for other in sorted(running, key=lambda other: other.planned_end_s()):
        at_s = max(at_s, other.planned_end_s())
        for name, mask in other.masks.items():
            counts.move(free[name], free[name] + mask.bit_count())
            free[name] += mask.bit_count()
        if counts.fits(job.gpus_per_node):
            break
    # The fullest nodes that will do, so that most of the room stays for others.
    promised: set[str] = set()
    for count in sorted(job.gpus_per_node, reverse=True):
        fitting = (name for name in free if free[name] >= count and name not in promised)
        promised.add(min(fitting, key=lambda name: (free[name], name)))
    return at_s, frozenset(promised)
