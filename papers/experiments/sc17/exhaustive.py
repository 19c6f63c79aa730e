"""The best makespan there is for a few jobs on one node, by branch and bound.

Over all schedules in which jobs start when one arrives or ends, in any order, on any numbers of
GPUs per socket. Two bounds: clairvoyant, in which jobs may be held back and pass each other at
will, also for one that has not arrived yet; and online, in which jobs are tried in the order of
arrival and one is passed only while any placement would slow it or a running job, which is what
postponing in TOPO-AWARE-P allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from gres_topology import NodeTopology
from policies.best_fit import domains
from policies.contract.bits import gpus_of
from simulation.core.jobs import SimJob
from simulation.errors import SimulationError
from simulation.models.speed import PlacedJob, Speed

#: More jobs than this take too long.
MOST = 8
_NODE = "node"


@dataclass(frozen=True, slots=True)
class _Job:
    """A running job: `left` of its work at `since_s`, `full_s` for all of it now."""

    at: int
    gpus: tuple[int, ...]
    since_s: float
    full_s: float = 0.0
    left: float = 1.0

    def end_s(self) -> float:
        return self.since_s + self.left * self.full_s


@dataclass(slots=True)
class _Search:
    jobs: Sequence[SimJob]
    topology: NodeTopology
    speed: Speed
    best_s: float
    clairvoyant: bool
    sockets: list[tuple[int, ...]] = field(init=False)
    ideal: list[float] = field(init=False)
    states: int = 0

    def __post_init__(self) -> None:
        self.sockets = [gpus_of(mask) for mask in domains(self.topology)]
        self.ideal = [self.speed.ideal_s(job) for job in self.jobs]

    def explore(self, now_s: float, running: tuple[_Job, ...], waiting: tuple[int, ...]) -> None:
        """Everything that can follow this state; waiting holds those not started, in order."""
        self.states += 1
        if not waiting:
            self.best_s = min(self.best_s, self._drain(now_s, running))
            return
        if self._bound(now_s, running, waiting) >= self.best_s:
            return
        self._choose(now_s, running, waiting, 0)

    def _choose(
        self, now_s: float, running: tuple[_Job, ...], waiting: tuple[int, ...], first: int
    ) -> None:
        """Start any of waiting[first:] now, then go on; or start no more and let time pass."""
        for place in range(first, len(waiting)):
            job = waiting[place]
            if self.jobs[job].submit_s > now_s:
                continue
            for gpus in self._ways(running, self.jobs[job].gpus_per_node[0]):
                more = (*running, _Job(job, gpus, now_s))
                self._choose(now_s, more, waiting[:place] + waiting[place + 1 :], place)
            if not self.clairvoyant and self._could_run_well(now_s, running, job):
                return
        self._pass_time(now_s, self._rescaled(now_s, running), waiting)

    def _pass_time(self, now_s: float, running: tuple[_Job, ...], waiting: tuple[int, ...]) -> None:
        arrivals = [self.jobs[at].submit_s for at in waiting if self.jobs[at].submit_s > now_s]
        moments = [*arrivals, *(run.end_s() for run in running)]
        if not waiting or not moments:
            if not waiting:
                self.explore(now_s, running, waiting)
            return
        then_s = min(moments)
        left = tuple(run for run in running if run.end_s() > then_s + 1e-9)
        self.explore(then_s, self._rescaled(then_s, left), waiting)

    def _could_run_well(self, now_s: float, running: tuple[_Job, ...], at: int) -> bool:
        """Whether the job could start now, run at its best and slow nobody."""
        job, running = self.jobs[at], self._rescaled(now_s, running)
        before = [run.full_s for run in running]
        for gpus in self._ways(running, job.gpus_per_node[0]):
            *others, own = self._rescaled(now_s, (*running, _Job(at, gpus, now_s)))
            if own.full_s <= self.ideal[at] and [run.full_s for run in others] <= before:
                return True
        return False

    def _ways(self, running: Sequence[_Job], count: int) -> Iterator[tuple[int, ...]]:
        """One choice of GPUs for every way to spread `count` over the sockets."""
        used = {gpu for run in running for gpu in run.gpus}
        free = [[gpu for gpu in socket if gpu not in used] for socket in self.sockets]
        for parts in product(*(range(len(gpus) + 1) for gpus in free)):
            if sum(parts) == count:
                yield tuple(gpu for gpus, n in zip(free, parts, strict=True) for gpu in gpus[:n])

    def _rescaled(self, now_s: float, running: tuple[_Job, ...]) -> tuple[_Job, ...]:
        """The running jobs at the speeds that hold from now on."""
        anew = []
        placed = [PlacedJob(self.jobs[run.at], {_NODE: run.gpus}) for run in running]
        for at, run in enumerate(running):
            beside = placed[:at] + placed[at + 1 :]
            full_s = self.speed.full_s(placed[at], {_NODE: self.topology}, beside)
            done = (now_s - run.since_s) / run.full_s if run.full_s else 0.0
            anew.append(replace(run, since_s=now_s, full_s=full_s, left=max(0.0, run.left - done)))
        return tuple(anew)

    def _drain(self, now_s: float, running: tuple[_Job, ...]) -> float:
        """When the last one ends if nothing more starts."""
        while running:
            now_s = min(run.end_s() for run in running)
            running = tuple(run for run in running if run.end_s() > now_s + 1e-9)
            running = self._rescaled(now_s, running)
        return now_s

    def _bound(self, now_s: float, running: Sequence[_Job], waiting: Sequence[int]) -> float:
        """No schedule from here ends earlier: the longest job, and the work over the GPUs."""
        longest, work = now_s, 0.0
        for run in running:
            ideal = run.left * self.ideal[run.at]
            longest = max(longest, now_s + ideal)
            work += ideal * len(run.gpus)
        for at in waiting:
            longest = max(longest, max(now_s, self.jobs[at].submit_s) + self.ideal[at])
            work += self.ideal[at] * self.jobs[at].gpus_per_node[0]
        return max(longest, now_s + work / self.topology.gpus)


def best_makespan_s(
    jobs: Sequence[SimJob], topology: NodeTopology, speed: Speed, *, clairvoyant: bool
) -> float:
    """The earliest second by which all jobs can have ended, counted from second 0."""
    if len(jobs) > MOST or any(len(job.gpus_per_node) != 1 for job in jobs):
        raise SimulationError(f"the exhaustive search takes up to {MOST} jobs of one node each")
    search = _Search(jobs, topology, speed, float("inf"), clairvoyant)
    start = min(job.submit_s for job in jobs)
    search.explore(start, (), tuple(range(len(jobs))))
    return search.best_s
