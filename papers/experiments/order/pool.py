"""One pool of GPUs, any of which do for any job: the order of the queue and nothing else."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from papers.experiments.order.arrivals import Arrivals
from policies.order.passing import Passing
from simulation.core.jobs import SimJob

#: Jobs behind the first one that a pass looks at for backfill (Slurm's bf_max_job_test), and
#: that may pass it.
DEPTH, MOST_PASSING = 500, 3000

Key = Callable[[SimJob], float]


@dataclass(slots=True)
class Pool:
    """Replays jobs in the order of their arrival, or of `key`.

    `backfill`: EASY, by limits. `passing`: who may go before the first in line besides; it learns
    run times as jobs end. `arrivals`: when the first in line is due by the order of arrival, and
    not by what would fit now. Jobs have limits not below their durations.
    """

    gpus: int
    backfill: bool = False
    passing: Passing | None = None
    #: The rule is told what jobs will take, in the place of their limits.
    told: bool = False
    arrivals: Arrivals | None = None
    key: Key | None = None
    now_s: float = 0.0
    free: int = field(init=False)
    #: Waiting jobs in order, each with its place in it.
    queue: list[tuple[float, SimJob]] = field(default_factory=list)
    running: dict[int, SimJob] = field(default_factory=dict)
    starts: dict[int, float] = field(default_factory=dict)
    #: Jobs that run and passed others -> their place in the order.
    passed: dict[int, float] = field(default_factory=dict)
    #: For how long each job could have started but for those that had passed it.
    held_up_s: dict[int, float] = field(default_factory=dict)
    _ends: list[tuple[float, int, SimJob]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = self.gpus

    def run(self, jobs: Sequence[SimJob]) -> dict[int, float]:
        """When each job starts (seconds)."""
        coming = sorted(jobs, key=lambda job: job.submit_s)
        at = 0
        while at < len(coming) or self._ends:
            times = coming[at : at + 1]
            next_s = min([one.submit_s for one in times] + [end for end, _, _ in self._ends[:1]])
            self._look_for_held_up(next_s)
            self.now_s = next_s
            while self._ends and self._ends[0][0] <= next_s:
                self._end(heapq.heappop(self._ends)[2])
            while at < len(coming) and coming[at].submit_s <= next_s:
                self._submit(coming[at], at)
                at += 1
            self._schedule()
        return self.starts

    def _look_for_held_up(self, until_s: float) -> None:
        """The first in line is held up if it would fit without those that passed it."""
        if self.passed and self.queue:
            place, first = self.queue[0]
            if _size(first) <= self.free + self._held_by_passing(place):
                held = self.held_up_s.get(first.job_id, 0.0)
                self.held_up_s[first.job_id] = held + until_s - self.now_s

    def _held_by_passing(self, place: float) -> int:
        return sum(
            _size(self.running[one]) for one, its_place in self.passed.items() if its_place > place
        )

    def _submit(self, job: SimJob, number: int) -> None:
        place = float(number) if self.key is None else self.key(job)
        if self.key is None:
            self.queue.append((place, job))
        else:
            at = next((i for i, (other, _) in enumerate(self.queue) if other > place), None)
            self.queue.insert(len(self.queue) if at is None else at, (place, job))
        if self.passing is not None:
            known = replace(job.known, limit_s=job.duration_s) if self.told else job.known
            self.passing.submitted(job.job_id, known)
        if self.arrivals is not None:
            self.arrivals.submitted(job.job_id, _size(job), self.now_s)

    def _end(self, job: SimJob) -> None:
        del self.running[job.job_id]
        self.passed.pop(job.job_id, None)
        self.free += _size(job)
        if self.passing is not None:
            self.passing.ended(job.job_id, self.now_s)
            self.passing.learning.ended(job.job_id, job.duration_s)
        if self.arrivals is not None:
            self.arrivals.ended(job.job_id, job.duration_s)

    def _start(self, job: SimJob, passed: bool = False) -> None:
        self.free -= _size(job)
        self.starts[job.job_id] = self.now_s
        self.running[job.job_id] = job
        heapq.heappush(self._ends, (self.now_s + job.duration_s, job.job_id, job))
        if self.passing is not None:
            self.passing.started(job.job_id, self.now_s, passed)
        if self.arrivals is not None:
            self.arrivals.started(job.job_id, self.now_s)

    def _schedule(self) -> None:
        started = 0
        while started < len(self.queue) and _size(self.queue[started][1]) <= self.free:
            self._start(self.queue[started][1])
            started += 1
        del self.queue[:started]
        if self.queue and self.passing is not None:
            self._let_pass(self.passing)
        if self.queue and self.free and self.backfill:
            self._backfill()

    def _let_pass(self, passing: Passing) -> None:
        place, first = self.queue[0]
        if self.arrivals is None:
            could_start = _size(first) <= self.free + self._held_by_passing(place)
            due_s = passing.due_s(first.job_id, could_start, self.now_s)
        else:
            due_s = self.arrivals.due_s(first.job_id, self.now_s)
        behind = {
            job.job_id: (its_place, job)
            for its_place, job in self.queue[1 : MOST_PASSING if self.free else 1]
            if _size(job) <= self.free
        }
        started = set()
        for job_id in passing.may_pass(due_s, behind, self.now_s):
            its_place, job = behind[job_id]
            if _size(job) <= self.free:
                self._start(job, passed=True)
                self.passed[job_id] = its_place
                started.add(job_id)
        self._leave(started)

    def _backfill(self) -> None:
        first = self.queue[0][1]
        free, start_s = self.free, self.now_s
        for end_s, size in sorted(map(self._planned, self.running.values())):
            free, start_s = free + size, end_s
            if free >= _size(first):
                break
        spare = free - _size(first)
        started = set()
        for _, job in self.queue[1:DEPTH]:
            size = _size(job)
            if size > self.free:
                continue
            is_short = self.now_s + _limit_s(job) <= start_s
            if is_short or size <= spare:
                spare -= 0 if is_short else size
                self._start(job)
                started.add(job.job_id)
        self._leave(started)

    def _planned(self, job: SimJob) -> tuple[float, int]:
        return max(self.now_s, self.starts[job.job_id] + _limit_s(job)), _size(job)

    def _leave(self, started: Iterable[int]) -> None:
        gone = set(started)
        if gone:
            self.queue = [entry for entry in self.queue if entry[1].job_id not in gone]


def _size(job: SimJob) -> int:
    return sum(job.gpus_per_node)


def _limit_s(job: SimJob) -> float:
    return job.duration_s if job.walltime_s is None else job.walltime_s
