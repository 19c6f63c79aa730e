"""Queues of jobs that may borrow GPUs of other nodes (Markthub et al., PDCAT 2014).

Execution times are the paper's model (eqs. 1-7), and change whenever the jobs on a job's nodes do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from papers.simulators.loans import Ended, LoanNodes, RunningLoan
from papers.simulators.queues import AutoRQueue, GQueue
from policies import Wait
from policies.remote import NodeCapacity, RemoteJob, RemotePlacement
from policies.remote.r_queue import (
    ExpectedRelease,
    JobWork,
    NetworkSpeeds,
    RQueue,
    execution_s,
)
from simulation.core import steps
from simulation.core.clock import Clock
from simulation.errors import SimulationError


@dataclass(frozen=True, slots=True)
class QueuedLoanJob:
    """A job of a log: when it came, what it asks, what it does."""

    submit_s: float
    job: RemoteJob
    work: JobWork


_TOO_FEW = Wait("too few GPUs are free in all")
#: Of events at one second, ends come before submits.
_END, _SUBMIT = 0, 1


@dataclass(slots=True)
class IdleGpus:
    """GPUs without a job, integrated over time (GPU seconds; divide by the seconds)."""

    in_use: float = 0.0  # on nodes that run a job or lend to one
    hosting: float = 0.0  # on nodes that run a job
    wanted: float = 0.0  # anywhere, while a job waits
    wanted_s: float = 0.0  # how long jobs waited


@dataclass(slots=True)
class QueuedLoanSimulator:
    """One queue on nodes that are all free at first; `run` once."""

    nodes: dict[str, NodeCapacity]
    queue: GQueue | RQueue | AutoRQueue
    wires: NetworkSpeeds = field(default_factory=NetworkSpeeds)
    #: Where every job ran, by number.
    placements: dict[int, RemotePlacement] = field(default_factory=dict)
    #: GPUs left idle up to `end_s`, the second of the last event.
    idle: IdleGpus = field(default_factory=IdleGpus)
    end_s: float = 0.0
    _clock: Clock = field(default_factory=Clock)
    _jobs: Sequence[QueuedLoanJob] = ()
    _waiting: deque[int] = field(default_factory=deque)
    _ended: dict[int, Ended] = field(default_factory=dict)
    _loans: LoanNodes[RunningLoan] = field(init=False)
    _running: dict[int, RunningLoan] = field(default_factory=dict)
    _free: int = 0
    _idle_in_use: int = 0
    _idle_hosting: int = 0

    def __post_init__(self) -> None:
        self._loans = LoanNodes(self.nodes)
        self._free = sum(room.free.bit_count() for room in self.nodes.values())

    def run(self, jobs: Sequence[QueuedLoanJob]) -> list[Ended]:
        """Every job's end; `jobs` in order of submits. SimulationError if one never fits."""
        self._jobs = jobs
        self._await_submit(0)
        with steps.counted(len(jobs)) as done:
            while self._clock:
                self._clock.step()
                done(len(self._ended))
        if self._waiting:
            asked = jobs[self._waiting[0]].job.request.gpus_per_node
            raise SimulationError(f"a job of {asked} GPUs does not fit the empty cluster; drop it")
        return [self._ended[number] for number in range(len(jobs))]

    def _await_submit(self, number: int) -> None:
        """Only the next submit is an event: a log's whole year in the heap slows every event."""
        if number < len(self._jobs):
            at_s = self._jobs[number].submit_s
            self._clock.at(at_s, partial(self._submit, number), _SUBMIT)

    def _submit(self, number: int) -> None:
        self._await_submit(number + 1)
        self._count_time()
        self._waiting.append(number)
        if len(self._waiting) == 1:  # else the first one was refused in this very state
            self._start_waiting()

    def _end(self, running: RunningLoan) -> None:
        self._count_time()
        del self._running[running.number]
        self._move(running, self._loans.give_back)
        queued = self._jobs[running.number]
        self._ended[running.number] = Ended(
            running.start_s - queued.submit_s,
            self._clock.now_s - running.start_s,
            execution_s(queued.work, self.wires, False),
            running.placement.remote_gpus,
        )
        self._start_waiting()

    def _count_time(self) -> None:
        """Add the idle GPUs of the time since the last event."""
        passed_s = self._clock.now_s - self.end_s
        self.idle.in_use += self._idle_in_use * passed_s
        self.idle.hosting += self._idle_hosting * passed_s
        if self._waiting:
            self.idle.wanted += self._free * passed_s
            self.idle.wanted_s += passed_s
        self.end_s = self._clock.now_s

    def _start_waiting(self) -> None:
        """Start jobs in their order until one has to wait."""
        while self._waiting:
            number = self._waiting[0]
            answer = self._decide(self._jobs[number])
            if isinstance(answer, Wait):
                return
            self._waiting.popleft()
            self._start(number, answer)

    def _decide(self, queued: QueuedLoanJob) -> RemotePlacement | Wait:
        queue = self.queue
        if sum(queued.job.request.gpus_per_node) > self._free:
            return _TOO_FEW  # so would every queue say, after looking at every node
        if isinstance(queue, AutoRQueue):
            releases = (self._release(running) for running in self._running.values())
            return queue.decide(queued.job, queued.work, self.nodes, self._loans.jobs, releases)
        lending_counts = isinstance(queue, GQueue) or queue.lending_counts
        busy = self._loans.jobs if lending_counts else self._loans.hosted
        return queue.decide(queued.job, self.nodes, busy)

    def _release(self, running: RunningLoan) -> ExpectedRelease:
        """What it gives back at its end, which is known here as well as a queue could."""
        return ExpectedRelease(
            running.end_s() - self._clock.now_s,
            {name: taken.gpus for name, taken in running.taken.items()},
            {name: taken.cpus for name, taken in running.taken.items()},
            {name: taken.memory_mb for name, taken in running.taken.items()},
        )

    def _start(self, number: int, answer: RemotePlacement) -> None:
        self.placements[number] = answer
        taken = self._loans.taken(self._jobs[number].job, answer)
        running = RunningLoan(self._clock.now_s, number=number, placement=answer, taken=taken)
        self._running[number] = running
        self._move(running, self._loans.take)

    def _move(self, running: RunningLoan, change: Callable[[RunningLoan], None]) -> None:
        """Take or give back what the job has, which changes the speed of the jobs beside it."""
        self._count_idle(running.taken, -1)
        change(running)
        self._count_idle(running.taken, 1)
        self._set_speeds(running.taken)

    def _count_idle(self, names: Iterable[str], sign: int) -> None:
        for name in names:
            free = sign * self.nodes[name].free.bit_count()
            self._free += free
            self._idle_in_use += free if self._loans.jobs[name] else 0
            self._idle_hosting += free if self._loans.hosted[name] else 0

    def _set_speeds(self, names: Iterable[str]) -> None:
        """What runs on these nodes goes on at the speed of its new neighbourhood."""
        for running in self._loans.jobs_on(names):
            crowd = max(self._loans.jobs[name] for name in running.taken)
            if crowd != running.crowd:
                running.crowd, work = crowd, self._jobs[running.number].work
                full_s = execution_s(work, self.wires, running.placement.remote_gpus > 0, crowd)
                end = partial(self._end, running)
                self._clock.run(running, full_s, end, _END, running.number)
