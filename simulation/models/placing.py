"""The simulator of placing policies: Slurm and the clock are replaced, the policies are not."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from gres_topology import Network, NodeTopology
from policies import (
    Ahead,
    Cluster,
    LooksAt,
    Placement,
    Policy,
    Release,
    RunningJob,
    Wait,
)
from policies.contract.bits import mask_of
from policies.horizon.run_times import LimitsUsed
from policies.horizon.usual import UsualCommunication
from policies.order.durations import Learning
from simulation.core import steps
from simulation.core.clock import Clock
from simulation.core.jobs import SimJob
from simulation.core.occupancy import Occupancy
from simulation.core.queue_order import PassingQueue, in_turn
from simulation.core.record import Record, Running, SimulatedRun
from simulation.core.requests import RequestMaker
from simulation.errors import SimulationError
from simulation.models.speed import PlacedJob, Speed

#: How many queued jobs one pass looks at (Slurm's default_queue_depth and bf_max_job_test).
DEPTH = 500
#: Waiting and running jobs that a policy sees which looks ahead; the engine shows as many.
AHEAD = 32


@dataclass(frozen=True, slots=True)
class Postponing:
    """The bounds on a policy's waits, as `waiting` in gputopo.yaml; the same defaults.

    A job that ends wakes every waiting job; a wait that was cut short in this way does not count.
    """

    max_postponements: int = 10
    max_wait_s: float = 600.0
    step_s: float = 60.0


@dataclass(slots=True)
class _Waiting:
    """What is known of a postponed job: the plugin keeps the same three numbers."""

    first_s: float
    until_s: float
    count: int = 0
    is_cut_short: bool = False


@dataclass(slots=True)
class Simulator:
    """One policy on one virtual cluster, all GPUs free at first.

    `easy`: EASY backfill instead of strict first in, first out. `network`: the one between the
    nodes, None where it is not known. `passing`: shorter work may pass; each run needs its own.
    """

    cluster: Mapping[str, NodeTopology]
    policy: Policy
    speed: Speed = field(default_factory=Speed)
    easy: bool = False
    bounds: Postponing = field(default_factory=Postponing)
    network: Network | None = None
    passing: PassingQueue | None = None

    clock: Clock = field(default_factory=Clock)
    queue: dict[int, SimJob] = field(default_factory=dict)
    running: dict[int, Running] = field(default_factory=dict)
    occupancy: Occupancy = field(init=False)
    result: SimulatedRun = field(init=False)
    _requests: RequestMaker = field(init=False)
    _waiting: dict[int, _Waiting] = field(default_factory=dict)
    _order: dict[int, int] = field(default_factory=dict)
    _on_node: dict[str, set[int]] = field(default_factory=dict)
    _snapshot: tuple[RunningJob, ...] | None = None
    _used: LimitsUsed = field(default_factory=LimitsUsed)
    _usual: UsualCommunication = field(default_factory=UsualCommunication)
    _learning: Learning = field(init=False)

    def __post_init__(self) -> None:
        self.occupancy = Occupancy(self.cluster)
        self.result = SimulatedRun(self.policy.name, gpus=self.occupancy.gpus)
        self._requests = RequestMaker(self.policy)
        self._learning = Learning() if self.passing is None else self.passing.rule.learning
        self._on_node = {name: set() for name in self.cluster}

    def run(self, jobs: Collection[SimJob]) -> SimulatedRun:
        """Run every job once; records in the order of their starts.

        SimulationError for a job that could never start, named with what it asked for.
        """
        for job in jobs:
            if not self.occupancy.counts.fits(job.gpus_per_node):
                raise SimulationError(
                    f"job {job.called} asks for {'+'.join(map(str, job.gpus_per_node))} GPUs;"
                    " the empty cluster has no such nodes"
                )
            self.clock.at(job.submit_s, partial(self._submit, job))
        with steps.counted(len(jobs)) as done:
            while self.clock:
                self.clock.moment()
                self._schedule()
                done(len(self.result.records))
        if self.queue or self.running:
            raise SimulationError(f"job {next(iter(self.queue or self.running))}: never ended")
        self.result.records.sort(key=lambda record: self._order[record.job.job_id])
        return self.result

    def _submit(self, job: SimJob) -> None:
        self.queue[job.job_id] = job
        self._learning.submitted(job.job_id, job.known)
        if self.passing is not None:
            self.passing.submitted(job)

    def _schedule(self) -> None:
        """One pass over the queue."""
        if not self.queue:
            return
        # Whether the first in line is due has to be known of every moment, where jobs may pass.
        if self.passing is None and not any(self.occupancy.free.values()):
            return
        jobs = filter(self._may_ask, list(itertools.islice(self.queue.values(), DEPTH)))
        running = self.running.values()
        for job, reserved in in_turn(
            jobs,
            self.occupancy,
            running,
            self.clock.now_s,
            self.speed.ideal_s,
            easy=self.easy,
            passing=self.passing,
        ):
            self._try_start(job, reserved)

    def _may_ask(self, job: SimJob) -> bool:
        """Whether the job is not in the middle of a wait."""
        waiting = self._waiting.get(job.job_id)
        return waiting is None or waiting.until_s <= self.clock.now_s

    def _try_start(self, job: SimJob, reserved: Collection[str]) -> None:
        """Ask the policy for a job that fits; start it, or let it wait.

        `reserved` names nodes it may not use.
        """
        nodes = self.occupancy.nodes.without(reserved)
        began = time.perf_counter()
        snapshot = Cluster(nodes, self._jobs(), self.network, self._ahead(job))
        answer = self.policy.place(self._requests.request(job), snapshot)
        self.result.decision_s.append(time.perf_counter() - began)
        if isinstance(answer, Wait):
            if self._may_wait(job, answer):
                return
            if answer.instead is None:
                raise SimulationError(f"job {job.called}: the policy waits and offers nothing")
            self._start(job, answer.instead, is_forced=True)
        else:
            self._start(job, answer)

    def _ahead(self, job: SimJob) -> Ahead | None:
        """What is to come, for a policy that looks at it."""
        if LooksAt.QUEUE not in self.policy.looks_at:
            return None
        seen = list(itertools.islice(self._seen_by(job), AHEAD + 1))
        before = next((at for at, one in enumerate(seen) if one is job), AHEAD)
        others = [one for one in seen if one is not job][:AHEAD]

        def took_s(one: SimJob) -> Sequence[float]:
            nearer = self._used.own_are_nearer(one.user or None)
            return self._learning.took_s(one.job_id) if nearer else ()

        queue = [self._requests.waiting(one, self._planned_s(one), took_s(one)) for one in others]
        ends = heapq.nsmallest(AHEAD, self.running.values(), key=Running.planned_end_s)
        releases = [
            Release(run.planned_end_s(), name, mask, run.start_s, run.job.job_id, took_s(run.job))
            for run in ends
            for name, mask in run.masks.items()
        ]
        waiting = self._waiting.get(job.job_id)
        return Ahead(
            self._planned_s(job),
            queue,
            releases,
            backfill=self.easy,
            before=before,
            used=self._used.parts(),
            used_by=self._used.users(),
            took_s=took_s(job),
            now_s=self.clock.now_s,
            waited_s=self.clock.now_s - waiting.first_s if waiting else 0.0,
            usual=self._usual.share,
        )

    def _seen_by(self, job: SimJob) -> Iterable[SimJob]:
        """The jobs that wait with it, in the queue's order."""
        return self.queue.values()

    def _planned_s(self, job: SimJob) -> float:
        return self.speed.ideal_s(job) if job.walltime_s is None else job.walltime_s

    def _jobs(self) -> tuple[RunningJob, ...]:
        if self._snapshot is None:
            self._snapshot = tuple(run.seen for run in self.running.values())
        return self._snapshot

    def _may_wait(self, job: SimJob, answer: Wait) -> bool:
        """Postpone the job as the select plugin does, unless the bounds are used up."""
        waiting = self._waiting.get(job.job_id)
        if waiting is None:
            waiting = self._waiting[job.job_id] = _Waiting(self.clock.now_s, self.clock.now_s)
        most_s = min(answer.at_most_s, self.bounds.max_wait_s)
        left_s = most_s - (self.clock.now_s - waiting.first_s)
        count = waiting.count + (not waiting.is_cut_short)
        if count > self.bounds.max_postponements or left_s <= 0:
            return False
        waiting.count, waiting.is_cut_short = count, False
        waiting.until_s = self.clock.now_s + min(self.bounds.step_s, left_s)
        self.result.waits += 1
        self.clock.at(waiting.until_s, lambda: None)  # the queue is looked at again then
        return True

    def _start(self, job: SimJob, placement: Placement, *, is_forced: bool = False) -> None:
        masks = {name: mask_of(gpus) for name, gpus in placement.gpus.items()}
        self.occupancy.take(masks)
        del self.queue[job.job_id]
        waiting = self._waiting.pop(job.job_id, None)
        run = Running(
            job=job,
            placement=placement,
            masks=masks,
            seen=self._requests.running(job, masks),
            start_s=self.clock.now_s,
            ideal_s=self.speed.ideal_s(job),
            postponed=waiting.count if waiting else 0,
            is_forced=is_forced,
        )
        self.running[job.job_id] = run
        self._order[job.job_id] = len(self._order)
        if self.passing is not None:
            self.passing.started(job, self.clock.now_s)
        self._snapshot = None
        for name in masks:
            self._on_node[name].add(job.job_id)
        self._rescale(masks, started=run)

    def _end(self, run: Running) -> None:
        del self.running[run.job.job_id]
        if self.passing is not None:
            self.passing.ended(run.job, self.clock.now_s)
        self._snapshot = None
        ran_s, took_s = self.clock.now_s - run.start_s, self._learning.took_s(run.job.job_id)
        planned_s, user = self._planned_s(run.job), run.job.user or None
        self._used.ended(ran_s, planned_s, took_s, user)
        self._learning.ended(run.job.job_id, ran_s)
        if run.seen.untold and len(run.masks) == 1 and LooksAt.QUEUE in self.policy.looks_at:
            [(name, mask)] = run.masks.items()
            self._usual.ended(self.cluster[name], mask, run.seen.untold, ran_s, planned_s, user)
        self.occupancy.release(run.masks)
        for name in run.masks:
            self._on_node[name].discard(run.job.job_id)
        self._rescale(run.masks)
        self.result.records.append(
            Record(
                run.job,
                run.start_s,
                self.clock.now_s,
                run.placement,
                run.postponed,
                run.is_forced,
                run.ideal_s,
                run.is_killed,
            )
        )
        for other in self._waiting.values():
            if other.until_s > self.clock.now_s:
                other.until_s, other.is_cut_short = self.clock.now_s, True

    def _rescale(self, nodes: Iterable[str], started: Running | None = None) -> None:
        """New speeds on these nodes: what is done stays done, what is left takes longer or less."""
        if self.speed.has_neighbours:
            ids = sorted(set().union(*(self._on_node[name] for name in nodes)))
            affected = [self.running[job_id] for job_id in ids]
        else:
            affected = [] if started is None else [started]
        for run in affected:
            beside = self._beside(run) if self.speed.has_neighbours else ()
            full_s = self.speed.full_s(_placed(run), self.cluster, beside)
            if full_s != run.full_s:
                self.clock.run(run, full_s, partial(self._end, run))

    def _beside(self, run: Running) -> list[PlacedJob]:
        ids = set().union(*(self._on_node[name] for name in run.masks)) - {run.job.job_id}
        return [_placed(self.running[job_id]) for job_id in sorted(ids)]


def _placed(run: Running) -> PlacedJob:
    return PlacedJob(run.job, run.placement.gpus)
