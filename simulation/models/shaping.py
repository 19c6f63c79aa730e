"""Replaces Slurm and the clock for policies that shape jobs: the same schedulers as live.

A heap of arrivals and completions; at each moment the scheduler plans the whole queue, and what
it starts runs for as long as the true performance model says. The scheduler sees predictions
only.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from policies.contract.scheduling import Planned, Platform, Queue, Scheduler, Started, Task
from policies.performance import Shape
from simulation.errors import SimulationError

#: How long a task runs in truth with a shape, seconds.
Truth = Callable[[Task, Shape], float]


@dataclass(frozen=True, slots=True)
class Done:
    """One task that ran."""

    task: Task
    shape: Shape
    start_s: float
    end_s: float

    @property
    def is_in_time(self) -> bool:
        """Whether it ended by its deadline."""
        return self.end_s <= self.task.deadline_s


@dataclass(slots=True)
class Replay:
    """One scheduler on one platform, all GPUs free at first.

    `plan_s` holds the seconds each plan took; `done` the tasks in the order of their ends.
    """

    platform: Platform
    scheduler: Scheduler
    truth: Truth
    done: list[Done] = field(default_factory=list)
    plan_s: list[float] = field(default_factory=list)
    _free: dict[str, int] = field(default_factory=dict)
    _waiting: dict[int, Task] = field(default_factory=dict)
    _running: dict[int, tuple[Planned, Started, float]] = field(default_factory=dict)
    _ends: list[tuple[float, int]] = field(default_factory=list)

    def run(self, tasks: Sequence[Task]) -> list[Done]:
        """Run every task once; SimulationError where the scheduler leaves one waiting."""
        width = len(str(self.platform.nodes))
        self._free = {
            f"node{at:0{width}}": self.platform.gpus_per_node
            for at in range(1, self.platform.nodes + 1)
        }
        coming = sorted(tasks, key=lambda task: (task.arrival_s, task.job_id), reverse=True)
        while coming or self._ends:
            now_s = min(
                coming[-1].arrival_s if coming else float("inf"),
                self._ends[0][0] if self._ends else float("inf"),
            )
            while self._ends and self._ends[0][0] <= now_s:
                self._end(heapq.heappop(self._ends)[1])
            while coming and coming[-1].arrival_s <= now_s:
                task = coming.pop()
                self._waiting[task.job_id] = task
            if self._waiting:
                self._plan(now_s)
        if self._waiting:
            raise SimulationError(
                f"job {next(iter(self._waiting))}: {self.scheduler.name} never started it"
            )
        return self.done

    def _plan(self, now_s: float) -> None:
        queue = Queue(
            now_s, self.platform, self._free, tuple(self._waiting.values()),
            tuple(started for _, started, _ in self._running.values()),
        )  # fmt: skip
        began = time.perf_counter()
        planned = self.scheduler.plan(queue)
        self.plan_s.append(time.perf_counter() - began)
        for one in planned:
            if one.nodes:
                self._start(one, now_s)

    def _start(self, planned: Planned, now_s: float) -> None:
        task, shape = planned.task, planned.shape
        if len(planned.nodes) != shape.nodes or task.job_id not in self._waiting:
            raise SimulationError(f"job {task.job_id}: {self.scheduler.name} starts it wrongly")
        for name in planned.nodes:
            self._free[name] -= shape.gpus_per_node
            if self._free[name] < 0:
                raise SimulationError(
                    f"job {task.job_id}: {self.scheduler.name} takes busy GPUs of {name}"
                )
        del self._waiting[task.job_id]
        predicted_s = float(task.latency_s[self.platform.index(shape)])
        started = Started(task.job_id, task.profile, shape, now_s + predicted_s)
        self._running[task.job_id] = (planned, started, now_s)
        heapq.heappush(self._ends, (now_s + self.truth(task, shape), task.job_id))

    def _end(self, job_id: int) -> None:
        planned, started, start_s = self._running.pop(job_id)
        for name in planned.nodes:
            self._free[name] += started.shape.gpus_per_node
        end_s = start_s + self.truth(planned.task, started.shape)
        self.done.append(Done(planned.task, started.shape, start_s, end_s))
