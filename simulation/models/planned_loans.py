"""Jobs planned together by DRMaestro, with or without remote GPUs, on a virtual cluster.

A round decides for everybody who waits; it comes at the next multiple of `interval_s` after
something changed (thesis section 5.4.4: the scheduler is called at intervals). What runs with
remote GPUs is rescaled whenever the traffic on its machines changes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from policies import Wait
from policies.drmaestro import HELD_BACK, DRMaestro, NetworkProfile
from policies.remote import RemoteJob, RemotePlacement, Room
from simulation.errors import SimulationError
from simulation.models.queued_loans import Ended


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job: when it came, what it asks, seconds on local GPUs, and its use of the network."""

    submit_s: float
    job: RemoteJob
    alone_s: float
    network: NetworkProfile


@dataclass(slots=True)
class _Running:
    number: int
    placement: RemotePlacement
    flows: Mapping[str, float]
    start_s: float
    since_s: float
    full_s: float
    left: float = 1.0
    version: int = 0


@dataclass(slots=True)
class PlannedSimulator:
    """One planner on machines of which `warm` gives CPUs and memory back later. `run` once.

    `warm` holds (second, machine, CPUs, memory in MB). Traffic on a machine's network is the sum
    of its flows, 1 being all it carries; a flow is the share of time that a job with remote GPUs
    spends on an idle network, once per remote GPU.
    """

    machines: dict[str, Room]
    planner: DRMaestro
    warm: Sequence[tuple[float, str, int, int]] = ()
    interval_s: float = 1.0
    end_s: float = 0.0
    _clock_s: float = 0.0
    _traffic: dict[str, float] = field(default_factory=dict)
    _running: dict[int, _Running] = field(default_factory=dict)
    _on: dict[str, set[int]] = field(default_factory=dict)
    _ends: list[tuple[float, int, int]] = field(default_factory=list)
    _waiting: dict[int, RemoteJob] = field(default_factory=dict)

    def run(self, jobs: Sequence[PlannedJob]) -> list[Ended]:
        """Every job's end, in order of submits; SimulationError if some never fit."""
        self._traffic = dict.fromkeys(self.machines, 0.0)
        self._on = {name: set() for name in self.machines}
        found: dict[int, Ended] = {}
        warm, coming, round_s = sorted(self.warm), 0, math.inf
        while len(found) < len(jobs):
            submit_s = jobs[coming].submit_s if coming < len(jobs) else math.inf
            warm_s = warm[0][0] if warm else math.inf
            end_s = self._ends[0][0] if self._ends else math.inf
            next_s = min(submit_s, warm_s, end_s)
            if next_s == round_s == math.inf:
                raise SimulationError(f"{len(self._waiting)} jobs fit no machine; drop them")
            if round_s < next_s:
                self._clock_s = round_s
                round_s = round_s + self.interval_s if self._round(jobs) else math.inf
                continue
            if next_s == end_s:
                changed = self._pop(found, jobs)
            elif next_s == warm_s:
                self._cool(*warm.pop(0))
                changed = True
            else:
                self._waiting[coming], coming, changed = jobs[coming].job, coming + 1, True
            self._clock_s = next_s
            if changed and self._waiting:
                round_s = min(round_s, self._next_round(next_s))
        self.end_s = self._clock_s
        return [found[number] for number in range(len(jobs))]

    def _next_round(self, now_s: float) -> float:
        return self.interval_s * math.ceil(now_s / self.interval_s)

    def _cool(self, _: float, name: str, cpus: int, memory_mb: int) -> None:
        self.machines[name].cpus += cpus
        self.machines[name].memory_mb += memory_mb

    def _round(self, jobs: Sequence[PlannedJob]) -> bool:
        """Plan for all who wait. RET: whether the network held somebody back."""
        costs = replace(self.planner.costs, loads=self._loads())
        asked = self._asked()
        answers = replace(self.planner, costs=costs).decide(
            [job for _, job in asked], self.machines
        )
        touched: set[str] = set()
        held_back = False
        for (number, job), answer in zip(asked, answers, strict=True):
            if isinstance(answer, Wait):
                held = answer == HELD_BACK
                held_back |= held
                self._waiting[number] = replace(
                    job, rounds_waited=job.rounds_waited + 1, postponed=job.postponed + held
                )
            else:
                del self._waiting[number]
                touched |= self._start(number, jobs[number], answer)
        self._rescale(touched, jobs)
        return held_back

    def _asked(self) -> list[tuple[int, RemoteJob]]:
        """In their order, as many as ask for no more GPUs than are free (Algorithm 4).

        Those that the network holds back do not keep others from being asked.
        """
        free = sum(room.free.bit_count() for room in self.machines.values())
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
        flows: dict[str, float] = {}
        for task in answer.tasks:
            for donor, _ in task.remote:
                for name in (task.node, donor):
                    flows[name] = flows.get(name, 0.0) + job.network.idle
        self._occupy(job.job, answer, flows, 1)
        self._running[number] = _Running(number, answer, flows, self._clock_s, self._clock_s, 0.0)
        for name in flows:
            self._on[name].add(number)
        if not flows:
            self._go(self._running[number], job.alone_s)
        return set(flows)

    def _pop(self, found: dict[int, Ended], jobs: Sequence[PlannedJob]) -> bool:
        """The next end, unless it was rescaled since. RET: whether it was one."""
        end_s, number, version = heapq.heappop(self._ends)
        running = self._running.get(number)
        if running is None or running.version != version:
            return False
        self._clock_s, job = end_s, jobs[number]
        del self._running[number]
        self._occupy(job.job, running.placement, running.flows, -1)
        for name in running.flows:
            self._on[name].discard(number)
        self._rescale(running.flows, jobs)
        found[number] = Ended(
            running.start_s - job.submit_s,
            end_s - running.start_s,
            job.alone_s,
            running.placement.remote_gpus,
        )
        return True

    def _occupy(
        self, job: RemoteJob, placement: RemotePlacement, flows: Mapping[str, float], sign: int
    ) -> None:
        for task in placement.tasks:
            room = self.machines[task.node]
            room.cpus -= sign * job.cpus
            room.memory_mb -= sign * job.memory_mb
            for gpu in task.local:
                room.free ^= 1 << gpu
            for name, gpu in task.remote:
                donor = self.machines[name]
                donor.free ^= 1 << gpu
                donor.cpus -= sign * donor.donor_cpus
                donor.memory_mb -= sign * donor.donor_memory_mb
        for name, share in flows.items():
            self._traffic[name] += sign * share

    def _rescale(self, names: Iterable[str], jobs: Sequence[PlannedJob]) -> None:
        """What has remote GPUs on these machines goes on at the speed of the traffic there."""
        for number in sorted({number for name in names for number in self._on[name]}):
            running = self._running[number]
            full_s = jobs[number].alone_s * self._stretch(running, jobs[number].network)
            if full_s != running.full_s:
                if running.full_s:
                    running.left -= (self._clock_s - running.since_s) / running.full_s
                running.version += 1
                self._go(running, full_s)

    def _go(self, running: _Running, full_s: float) -> None:
        running.since_s, running.full_s = self._clock_s, full_s
        left_s = max(0.0, running.left) * full_s
        heapq.heappush(self._ends, (self._clock_s + left_s, running.number, running.version))

    def _stretch(self, running: _Running, network: NetworkProfile) -> float:
        """Execution time over that on local GPUs, beside the others' traffic."""
        others = max(self._traffic[name] - share for name, share in running.flows.items())
        load = min(1.0, max(0.0, others))
        return (1 + network.overhead) * (1 + network.sensitivity * load)
