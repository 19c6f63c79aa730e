"""The task queues of GENIE's section 7.1, on models whose step times are public.

As printed: Poisson arrivals of 5, 10 and 20 tasks per hour over 24 hours, half training and half
inference, 5 % urgent, 35 % prior, 60 % normal, models and batches uniform (Table 3). The values
marked "ours" are not printed, and were fixed before anything was run.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from papers.experiments.pollux import PROFILES, runs_of
from policies.contract.scheduling import NORMAL, PRIOR, URGENT, Platform, Task
from policies.genie.tasks import TaskConstraints, TaskMaker
from policies.performance import (
    INFERENCE,
    TASKS,
    TRAINING,
    PerformanceModel,
    Run,
    Shape,
    Work,
    fit,
    lightweight,
)
from policies.performance.runs import Floats

HOUR_S = 3600.0
#: Table 3.
SHARES = {URGENT: 0.05, PRIOR: 0.35, NORMAL: 0.60}
#: Ours: batch sizes, in multiples of what one GPU holds; a quarter fits no single GPU.
BATCHES = (0.25, 0.5, 1.0, 2.0)
#: Ours: hours on the smallest shape, uniform (which makes iterations uniform).
HOURS = (0.5, 3.0)
#: Ours: what users ask for, GPUs -> share: the sizes 1, 2, 4 and 8 as often as in the Philly
#: trace (the paper's reference 20).
ASKED = {1: 0.813, 2: 0.025, 4: 0.062, 8: 0.100}
#: Ours: the share of training's compute time that an iteration of inference takes (the forward
#: pass; backward costs about twice as much).
FORWARD = 1 / 3


@dataclass(frozen=True, slots=True)
class Spec:
    """One workload: arrivals per hour, for so many hours, shares of the classes."""

    per_hour: float
    hours: float = 24.0
    #: A task's hours on the smallest shape, uniform.
    task_hours: tuple[float, float] = HOURS
    shares: tuple[float, float, float] = tuple(SHARES.values())  # type: ignore[assignment]


#: (profile, task) -> model.
Models = dict[tuple[str, str], PerformanceModel]


def models(kind: str = "calibrated", *, light: bool = True) -> Models:
    """Fitted models of all profiles and both tasks.

    `light`: from the lightweight profiler's runs, as schedulers know them; else from all.
    """
    models: Models = {}
    for profile in PROFILES:
        runs = lightweight(runs_of(profile)) if light else list(runs_of(profile))
        models[profile, TRAINING] = fit(kind, runs)
        models[profile, INFERENCE] = fit(kind, [_forward(run) for run in runs if run.gpus == 1])
    return models


def _forward(run: Run) -> Run:
    return Run(run.nodes, run.gpus, run.local_batch, run.step_s * FORWARD)


@dataclass(frozen=True, slots=True)
class Workload:
    """Tasks as the schedulers see them, and what each is."""

    tasks: list[Task]
    works: dict[int, Work]


def make(spec: Spec, seed: int, maker: TaskMaker, shapes: str = "users") -> Workload:
    """One queue. `shapes`: what black boxes ask for: `users`, `smallest` or `largest`."""
    draw = random.Random(seed)
    tasks: list[Task] = []
    works: dict[int, Work] = {}
    at_s = 0.0
    while True:
        at_s += draw.expovariate(spec.per_hour) * HOUR_S
        if at_s > spec.hours * HOUR_S:
            return Workload(tasks, works)
        profile, task = draw.choice(PROFILES), draw.choice(TASKS)
        held = maker.models[profile, task].max_local_batch
        batch = max(1, int(held * draw.choice(BATCHES)))
        service = draw.choices((URGENT, PRIOR, NORMAL), spec.shares)[0]
        base_s = draw.uniform(*spec.task_hours) * HOUR_S
        gpus = draw.choices(tuple(ASKED), tuple(ASKED.values()))[0]
        once = Work(profile, batch, 1, task)
        smallest = maker.smallest(once)
        step_s = maker.steps_s(once)[maker.platform.index(smallest)]
        work = Work(profile, batch, max(1, round(base_s / float(step_s))), task)
        job_id = len(tasks) + 1
        asked = _asked(maker, work, {"users": gpus, "smallest": 1, "largest": 10**6}[shapes])
        tasks.append(maker.task(job_id, work, at_s, TaskConstraints(service, requested=asked)))
        works[job_id] = work


def _asked(maker: TaskMaker, work: Work, gpus: int) -> Shape:
    """The shape a user would ask for: so many GPUs, or more where the batch needs them.

    On the fewest nodes; the largest shape where none has as many.
    """
    steps = maker.steps_s(work)
    held = [shape for at, shape in enumerate(maker.platform.shapes) if np.isfinite(steps[at])]
    enough = [shape for shape in held if shape.gpus >= gpus]
    if enough:
        return min(enough, key=lambda shape: (shape.gpus, shape.nodes))
    return max(held, key=lambda shape: (shape.gpus, -shape.nodes))


class TrueTimes:
    """How long tasks run in truth: models fitted to every measured run."""

    def __init__(self, platform: Platform, works: dict[int, Work], fitted: Models) -> None:
        self._maker = TaskMaker(platform, fitted)
        self._works = works
        self._known: dict[int, Floats] = {}

    def all(self, task: Task) -> Floats:
        """Seconds with every shape of the platform."""
        if task.job_id not in self._known:
            self._known[task.job_id] = self._maker.latencies_s(self._works[task.job_id])
        return self._known[task.job_id]

    def __call__(self, task: Task, shape: Shape) -> float:
        """Seconds."""
        return float(self.all(task)[self._maker.platform.index(shape)])
