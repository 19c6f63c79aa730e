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
from policies.r_queue import AutoRQueue, GQueue, Network, Release, RQueue, Work, execution_s
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


_TOO_FEW = Wait("too few GPUs are free in all", float("inf"))


@dataclass(slots=True)
class IdleGpus:
    """GPUs without a job, integrated over time (GPU seconds; divide by the seconds).

    `in_use` are those on nodes that run or lend to a job, `hosting` those on nodes that run
    one, and `wanted` those anywhere while a job waits, which is `wanted_s` long.
    """

    in_use: float = 0.0
    hosting: float = 0.0
    wanted: float = 0.0
    wanted_s: float = 0.0


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

    Afterwards `idle` tells what was left idle up to `end_s`, and with `keep_placements`
    `placements` where every job ran.
    """

    nodes: dict[str, Room]
    queue: GQueue | RQueue | AutoRQueue
    wires: Network = field(default_factory=Network)
    keep_placements: bool = False
    placements: dict[int, RemotePlacement] = field(default_factory=dict)
    idle: IdleGpus = field(default_factory=IdleGpus)
    end_s: float = 0.0
    _clock_s: float = 0.0
    _in_use: int = 0
    _hosting: int = 0
    _free: int = 0
    _counts: dict[str, int] = field(default_factory=dict)
    _hosted: dict[str, int] = field(default_factory=dict)
    _on: dict[str, set[int]] = field(default_factory=dict)
    _running: dict[int, _Running] = field(default_factory=dict)
    _ends: list[tuple[float, int, int]] = field(default_factory=list)

    def run(self, jobs: Sequence[QueuedJob]) -> list[Ended]:
        """Every job's end, in order of submits; SimulationError if one never fits."""
        self._counts = dict.fromkeys(self.nodes, 0)
        self._hosted = dict.fromkeys(self.nodes, 0)
        self._free = sum(room.free.bit_count() for room in self.nodes.values())
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
                self._forward(end_s, bool(waiting))
                found[number] = self._end(running, jobs)
                self._start(waiting, jobs)
            else:
                self._forward(submit_s, bool(waiting))
                waiting.append(coming)
                coming += 1
                if len(waiting) == 1:  # else the head was refused in this very state
                    self._start(waiting, jobs)
        if waiting:
            asked = jobs[waiting[0]].job.request.gpus_per_node
            raise SimulationError(f"a job of {asked} GPUs does not fit the empty cluster; drop it")
        self.end_s = self._clock_s
        return [found[number] for number in range(len(jobs))]

    def _forward(self, now_s: float, is_wanted: bool) -> None:
        passed_s = now_s - self._clock_s
        self.idle.in_use += self._in_use * passed_s
        self.idle.hosting += self._hosting * passed_s
        if is_wanted:
            self.idle.wanted += self._free * passed_s
            self.idle.wanted_s += passed_s
        self._clock_s = now_s

    def _start(self, waiting: deque[int], jobs: Sequence[QueuedJob]) -> None:
        while waiting:
            number = waiting[0]
            answer = self._ask(jobs[number], jobs)
            if isinstance(answer, Wait):
                return
            waiting.popleft()
            self._run(number, jobs, answer)

    def _ask(self, queued: QueuedJob, jobs: Sequence[QueuedJob]) -> RemotePlacement | Wait:
        queue = self.queue
        if sum(queued.job.request.gpus_per_node) > self._free:
            return _TOO_FEW  # so would every queue say, after looking at every node
        if isinstance(queue, AutoRQueue):
            releases = (self._release(one, jobs) for one in self._running.values())
            return queue.decide(queued.job, queued.work, self.nodes, self._counts, releases)
        lending_counts = isinstance(queue, GQueue) or queue.lending_counts
        return queue.decide(
            queued.job, self.nodes, self._counts if lending_counts else self._hosted
        )

    def _release(self, running: _Running, jobs: Sequence[QueuedJob]) -> Release:
        """What it gives back at its end, which is known here as well as a queue could."""
        job, tasks = jobs[running.number].job, running.placement.tasks
        gpus = dict.fromkeys(running.nodes, 0)
        cpus, memory_mb = dict.fromkeys(running.nodes, 0.0), dict.fromkeys(running.nodes, 0.0)
        for task in tasks:
            cpus[task.node] += job.cpus
            memory_mb[task.node] += job.memory_mb
            for gpu in task.local:
                gpus[task.node] |= 1 << gpu
            for name, gpu in task.remote:
                gpus[name] |= 1 << gpu
                cpus[name] += self.nodes[name].donor_cpus
                memory_mb[name] += self.nodes[name].donor_memory_mb
        end_s = running.since_s + running.left * running.full_s
        return Release(end_s - self._clock_s, gpus, cpus, memory_mb)

    def _run(self, number: int, jobs: Sequence[QueuedJob], answer: RemotePlacement) -> None:
        if self.keep_placements:
            self.placements[number] = answer
        hosts = frozenset(task.node for task in answer.tasks)
        nodes = tuple(sorted(hosts.union(answer.donors)))
        self._occupy(jobs[number].job, answer, nodes, 1)
        crowd, now_s = max(self._counts[name] for name in nodes), self._clock_s
        full_s = self._time(jobs[number].work, answer, crowd)
        self._running[number] = _Running(number, nodes, answer, now_s, now_s, crowd, full_s)
        for name in nodes:
            self._on[name].add(number)
        heapq.heappush(self._ends, (now_s + full_s, number, 0))
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
        self._count_idle(nodes, -1)
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
        for name in {task.node for task in placement.tasks}:
            self._hosted[name] += sign
        self._free -= sign * sum(len(task.local) + len(task.remote) for task in placement.tasks)
        self._count_idle(nodes, 1)

    def _count_idle(self, nodes: Iterable[str], sign: int) -> None:
        for name in nodes:
            free = sign * self.nodes[name].free.bit_count()
            self._in_use += free if self._counts[name] else 0
            self._hosting += free if self._hosted[name] else 0

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
