"""The simulator of schedulers that shape jobs: Slurm and the clock are replaced.

At every arrival and end the scheduler plans the whole queue by predictions; what it starts runs for
as long as the true performance model says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from policies.contract.scheduling import Planned, Platform, Queue, Scheduler, Started, Task
from policies.performance import Shape
from simulation.core.clock import Clock, JobProgress
from simulation.errors import SimulationError

#: Of events at one second, ends come before arrivals.
_END, _ARRIVAL = 0, 1
#: How long a task runs in truth with a shape, seconds.
Truth = Callable[[Task, Shape], float]


@dataclass(frozen=True, slots=True)
class TaskRun:
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
class ShapingSimulator:
    """One scheduler on one platform, all GPUs free at first."""

    platform: Platform
    scheduler: Scheduler
    truth: Truth
    #: In the order of their ends.
    done: list[TaskRun] = field(default_factory=list)
    #: Seconds that each plan took.
    plan_s: list[float] = field(default_factory=list)
    _free: dict[str, int] = field(default_factory=dict)
    _waiting: dict[int, Task] = field(default_factory=dict)
    _running: dict[int, Started] = field(default_factory=dict)
    _clock: Clock = field(default_factory=Clock)

    def run(self, tasks: Sequence[Task]) -> list[TaskRun]:
        """Run every task once; SimulationError where the scheduler leaves one waiting."""
        width = len(str(self.platform.nodes))
        self._free = {
            f"node{at:0{width}}": self.platform.gpus_per_node
            for at in range(1, self.platform.nodes + 1)
        }
        for task in tasks:
            self._clock.at(task.arrival_s, partial(self._arrive, task), _ARRIVAL, task.job_id)
        while self._clock:
            self._clock.moment()
            if self._waiting:
                self._plan(self._clock.now_s)
        if self._waiting:
            raise SimulationError(
                f"job {next(iter(self._waiting))}: {self.scheduler.name} never started it"
            )
        return self.done

    def _arrive(self, task: Task) -> None:
        self._waiting[task.job_id] = task

    def _plan(self, now_s: float) -> None:
        queue = Queue(
            now_s,
            self.platform,
            self._free,
            tuple(self._waiting.values()),
            tuple(self._running.values()),
        )
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
        self._running[task.job_id] = Started(task.job_id, task.profile, shape, now_s + predicted_s)
        end = partial(self._end, planned, now_s)
        self._clock.run(JobProgress(now_s), self.truth(task, shape), end, _END, task.job_id)

    def _end(self, planned: Planned, start_s: float) -> None:
        del self._running[planned.task.job_id]
        for name in planned.nodes:
            self._free[name] += planned.shape.gpus_per_node
        self.done.append(TaskRun(planned.task, planned.shape, start_s, self._clock.now_s))
