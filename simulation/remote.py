"""Queues of jobs with remote GPUs, first come, first served, on a virtual cluster.

The queues are those of `policies.r_queue`; execution times are the paper's model (eqs. 1-7), and
the rest of a running job is rescaled whenever the jobs on its nodes change.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from policies import Wait
from policies.r_queue import GQueue, Network, RQueue, Work, execution_s
from policies.remote import RemoteJob, RemotePlacement, Room
from simulation.errors import SimulationError


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job of a log: when it came, what it asks, what it does."""

    submit_s: float
    job: RemoteJob
    work: Work


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a job; `alone_s` is its time on local GPUs beside nobody."""

    wait_s: float
    execution_s: float
    alone_s: float
    remote_gpus: int

    @property
    def life_s(self) -> float:
        """Wait and execution (eq. 7)."""
        return self.wait_s + self.execution_s


@dataclass(slots=True)
class _Running:
    number: int
    nodes: tuple[str, ...]
    placement: RemotePlacement
    start_s: float
    since_s: float
    crowd: int
    full_s: float
    left: float = 1.0
    version: int = 0


@dataclass(slots=True)
class RemoteSimulator:
    """One queue on nodes that are all free at first. `run` once.

    Afterwards `idle_gpu_s` holds the GPU seconds that nodes in use left idle, up to `end_s`.
    """

    nodes: dict[str, Room]
    queue: GQueue | RQueue
    wires: Network = field(default_factory=Network)
    idle_gpu_s: float = 0.0
    end_s: float = 0.0
    _clock_s: float = 0.0
    _idle: int = 0
    _counts: dict[str, int] = field(default_factory=dict)
    _on: dict[str, set[int]] = field(default_factory=dict)
    _running: dict[int, _Running] = field(default_factory=dict)
    _ends: list[tuple[float, int, int]] = field(default_factory=list)

    def run(self, jobs: Sequence[QueuedJob]) -> list[Ended]:
        """Every job's end, in order of submits; SimulationError if one never fits."""
        self._counts = dict.fromkeys(self.nodes, 0)
        self._on = {name: set() for name in self.nodes}
        found: dict[int, Ended] = {}
        waiting: deque[int] = deque()
        coming = 0
        while coming < len(jobs) or self._ends:
            submit_s = jobs[coming].submit_s if coming < len(jobs) else float("inf")
            if self._ends and self._ends[0][0] <= submit_s:
                end_s, number, version = heapq.heappop(self._ends)
                running = self._running.get(number)
                if running is None or running.version != version:
                    continue
                self._forward(end_s)
                found[number] = self._end(running, jobs)
                self._start(waiting, jobs)
            else:
                self._forward(submit_s)
                waiting.append(coming)
                coming += 1
                if len(waiting) == 1:  # else the head was refused in this very state
                    self._start(waiting, jobs)
        if waiting:
            asked = jobs[waiting[0]].job.request.gpus_per_node
            raise SimulationError(f"a job of {asked} GPUs does not fit the empty cluster; drop it")
        self.end_s = self._clock_s
        return [found[number] for number in range(len(jobs))]

    def _forward(self, now_s: float) -> None:
        self.idle_gpu_s += self._idle * (now_s - self._clock_s)
        self._clock_s = now_s

    def _start(self, waiting: deque[int], jobs: Sequence[QueuedJob]) -> None:
        while waiting:
            number = waiting[0]
            answer = self.queue.decide(jobs[number].job, self.nodes, self._counts)
            if isinstance(answer, Wait):
                return
            waiting.popleft()
            hosts = {task.node for task in answer.tasks}
            nodes = tuple(sorted(hosts | set(answer.donors)))
            self._occupy(jobs[number].job, answer, nodes, 1)
            crowd = max(self._counts[name] for name in nodes)
            full_s = self._time(jobs[number].work, answer, crowd)
            running = _Running(number, nodes, answer, self._clock_s, self._clock_s, crowd, full_s)
            self._running[number] = running
            for name in nodes:
                self._on[name].add(number)
            heapq.heappush(self._ends, (self._clock_s + full_s, number, 0))
            self._rescale(nodes, jobs)

    def _end(self, running: _Running, jobs: Sequence[QueuedJob]) -> Ended:
        queued = jobs[running.number]
        del self._running[running.number]
        for name in running.nodes:
            self._on[name].discard(running.number)
        self._occupy(queued.job, running.placement, running.nodes, -1)
        self._rescale(running.nodes, jobs)
        return Ended(
            running.start_s - queued.submit_s,
            self._clock_s - running.start_s,
            execution_s(queued.work, self.wires, False),
            running.placement.remote_gpus,
        )

    def _occupy(
        self, job: RemoteJob, placement: RemotePlacement, nodes: Sequence[str], sign: int
    ) -> None:
        """Take (1) or give back (-1) what a placement uses."""
        self._idle -= self._idle_on(nodes)
        for task in placement.tasks:
            room = self.nodes[task.node]
            room.cpus -= sign * job.cpus
            room.memory_mb -= sign * job.memory_mb
            for gpu in task.local:
                room.free ^= 1 << gpu
            for name, gpu in task.remote:
                donor = self.nodes[name]
                donor.free ^= 1 << gpu
                donor.cpus -= sign * donor.donor_cpus
                donor.memory_mb -= sign * donor.donor_memory_mb
        for name in nodes:
            self._counts[name] += sign
        self._idle += self._idle_on(nodes)

    def _idle_on(self, nodes: Iterable[str]) -> int:
        return sum(self.nodes[name].free.bit_count() for name in nodes if self._counts[name])

    def _rescale(self, nodes: Iterable[str], jobs: Sequence[QueuedJob]) -> None:
        """What runs on these nodes goes on at the speed of its new neighbourhood."""
        for number in sorted({number for name in nodes for number in self._on[name]}):
            running = self._running[number]
            crowd = max(self._counts[name] for name in running.nodes)
            if crowd == running.crowd:
                continue
            running.left -= (self._clock_s - running.since_s) / running.full_s
            running.since_s, running.crowd = self._clock_s, crowd
            running.full_s = self._time(jobs[number].work, running.placement, crowd)
            running.version += 1
            left_s = max(0.0, running.left) * running.full_s
            heapq.heappush(self._ends, (self._clock_s + left_s, number, running.version))

    def _time(self, work: Work, placement: RemotePlacement, crowd: int) -> float:
        return execution_s(work, self.wires, placement.remote_gpus > 0, crowd)
