"""Jobs planned together by DRMaestro, with or without remote GPUs, on a virtual cluster.

A round plans all who wait, at the next multiple of `interval_s` after something changed (thesis
section 5.4.4). A job with remote GPUs changes its speed whenever the traffic on its machines does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from papers.simulators.loans import Ended, LoanNodes, RunningLoan
from policies import Wait
from policies.remote import NodeCapacity, RemoteJob, RemotePlacement
from policies.remote.drmaestro import HELD_BACK, DRMaestro, NetworkProfile
from simulation.core.clock import Clock
from simulation.errors import SimulationError

#: The order of events at one second: a round comes after everything that it can know of.
_END, _RETURN, _SUBMIT, _ROUND = range(4)


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job: when it came, what it asks, seconds on local GPUs, and its use of the network."""

    submit_s: float
    job: RemoteJob
    alone_s: float
    network: NetworkProfile


@dataclass(slots=True, kw_only=True)
class _Running(RunningLoan):
    """`flows` is the job's traffic on each machine that it lends from or to."""

    flows: Mapping[str, float]


@dataclass(slots=True)
class PlannedLoanSimulator:
    """One planner on some machines; `run` once.

    Traffic on a machine's network is the sum of its flows, 1 being all it carries; a flow is the
    share of time that a job with remote GPUs spends on an idle network, once per remote GPU.
    """

    machines: dict[str, NodeCapacity]
    planner: DRMaestro
    #: What machines get back later: (second, machine, CPUs, memory in MB).
    warm: Sequence[tuple[float, str, int, int]] = ()
    interval_s: float = 1.0
    end_s: float = 0.0
    #: Processor seconds that each plan took.
    plan_s: list[float] = field(default_factory=list)
    _clock: Clock = field(default_factory=Clock)
    _jobs: Sequence[PlannedJob] = ()
    _waiting: dict[int, RemoteJob] = field(default_factory=dict)
    _ended: dict[int, Ended] = field(default_factory=dict)
    _round_s: float = math.inf  # of the next round
    _traffic: dict[str, float] = field(init=False)
    _loans: LoanNodes[_Running] = field(init=False)

    def __post_init__(self) -> None:
        self._loans = LoanNodes(self.machines)
        self._traffic = dict.fromkeys(self.machines, 0.0)

    def run(self, jobs: Sequence[PlannedJob]) -> list[Ended]:
        """Every job's end, in order of submits; SimulationError if some never fit."""
        self._jobs = jobs
        for number, job in enumerate(jobs):
            self._clock.at(job.submit_s, partial(self._submit, number), _SUBMIT)
        for second, name, cpus, memory_mb in sorted(self.warm):
            self._clock.at(second, partial(self._return, name, cpus, memory_mb), _RETURN)
        while len(self._ended) < len(jobs):
            if not self._clock:
                raise SimulationError(f"{len(self._waiting)} jobs fit no machine; drop them")
            self._clock.step()
        self.end_s = self._clock.now_s
        return [self._ended[number] for number in range(len(jobs))]

    def _submit(self, number: int) -> None:
        self._waiting[number] = self._jobs[number].job
        self._plan_soon()

    def _return(self, name: str, cpus: int, memory_mb: int) -> None:
        self.machines[name].cpus += cpus
        self.machines[name].memory_mb += memory_mb
        self._plan_soon()

    def _end(self, running: _Running) -> None:
        job = self._jobs[running.number]
        self._loans.give_back(running)
        self._add_traffic(running.flows, -1)
        self._set_speeds(running.taken)
        self._ended[running.number] = Ended(
            running.start_s - job.submit_s,
            self._clock.now_s - running.start_s,
            job.alone_s,
            running.placement.remote_gpus,
        )
        self._plan_soon()

    def _plan_soon(self) -> None:
        """Something changed: the next round is due, if anybody waits."""
        next_s = self.interval_s * math.ceil(self._clock.now_s / self.interval_s)
        if self._waiting and next_s < self._round_s:
            self._plan_at(next_s)

    def _plan_at(self, at_s: float) -> None:
        self._round_s = at_s
        self._clock.at(at_s, self._round, _ROUND)

    def _round(self) -> None:
        """Plan for all who wait; once more later where the network held somebody back."""
        if self._clock.now_s != self._round_s:
            return  # an earlier round has taken its place
        self._round_s = math.inf
        costs = replace(self.planner.costs, loads=self._loads())
        asked = self._asked()
        planner, jobs = replace(self.planner, costs=costs), [job for _, job in asked]
        began = time.process_time()
        answers = planner.decide(jobs, self.machines)
        self.plan_s.append(time.process_time() - began)
        started: set[str] = set()
        is_held_back = False
        for (number, job), answer in zip(asked, answers, strict=True):
            if isinstance(answer, Wait):
                held = answer == HELD_BACK
                is_held_back |= held
                self._waiting[number] = replace(
                    job, rounds_waited=job.rounds_waited + 1, postponed=job.postponed + held
                )
            else:
                del self._waiting[number]
                started |= self._start(number, self._jobs[number], answer)
        self._set_speeds(started)
        if is_held_back:
            self._plan_at(self._clock.now_s + self.interval_s)

    def _asked(self) -> list[tuple[int, RemoteJob]]:
        """In their order, as many as ask for no more GPUs than are free (Algorithm 4).

        Those that the network holds back do not keep others from being asked.
        """
        free = sum(machine.free.bit_count() for machine in self.machines.values())
        asked = []
        for number, job in self._waiting.items():
            wanted = 0 if job.postponed else sum(job.request.gpus_per_node)
            if wanted > free:
                break
            free -= wanted
            asked.append((number, job))
        return asked

    def _loads(self) -> dict[str, float]:
        return {name: min(1.0, load) for name, load in self._traffic.items()}

    def _start(self, number: int, job: PlannedJob, answer: RemotePlacement) -> set[str]:
        """Start the job, without a speed as yet. RET: its machines."""
        flows: dict[str, float] = {}
        for task in answer.tasks:
            for donor, _ in task.remote:
                for name in (task.node, donor):
                    flows[name] = flows.get(name, 0.0) + job.network.idle
        taken = self._loans.taken(job.job, answer)
        running = _Running(
            self._clock.now_s, number=number, placement=answer, taken=taken, flows=flows
        )
        self._loans.take(running)
        self._add_traffic(flows, 1)
        return set(taken)

    def _add_traffic(self, flows: Mapping[str, float], sign: int) -> None:
        for name, share in flows.items():
            self._traffic[name] += sign * share

    def _set_speeds(self, names: Iterable[str]) -> None:
        """What runs on these machines goes on at the speed of the traffic there."""
        for running in self._loans.jobs_on(names):
            job = self._jobs[running.number]
            full_s = job.alone_s * self._stretch(running, job.network)
            if full_s != running.full_s:
                end = partial(self._end, running)
                self._clock.run(running, full_s, end, _END, running.number)

    def _stretch(self, running: _Running, network: NetworkProfile) -> float:
        """Execution time over that on local GPUs, beside the others' traffic."""
        if not running.flows:
            return 1.0
        others = max(self._traffic[name] - share for name, share in running.flows.items())
        load = min(1.0, max(0.0, others))
        return (1 + network.overhead) * (1 + network.sensitivity * load)
