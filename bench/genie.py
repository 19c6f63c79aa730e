"""genie: one event with 1,000 waiting jobs on 128 GPUs.

32 nodes of four GPUs, jobs of the experiments' workload that all wait. At each event some
nodes' GPUs have become free (drawn, seed 1): from a single GPU to all of them. Every job is
looked at anew at every event: shapes, deadlines, order, and who starts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from statistics import median

from bench.measure import Figure, at_most, conditions, quantile
from policies.genie.schedulers import schedulers
from policies.genie.tasks import TaskMaker
from policies.scheduling import Platform, Queue, Started
from simulation.experiments.genie.workload import Spec, make, models

BAR_MS = 50.0
WAITING, EVENTS, SEED = 1000, 100, 1
PLATFORM = Platform(32, 4)


def queues(seed: int = SEED) -> Iterator[Queue]:
    """The events' questions."""
    draw = random.Random(seed)
    # So dense that all have arrived within a few hours: deadlines are neither all gone nor far.
    tasks = make(Spec(per_hour=500.0, hours=2.5), seed, TaskMaker(PLATFORM, models())).tasks
    assert len(tasks) >= WAITING, "the workload became too small for this figure"
    tasks = tasks[:WAITING]
    last_s = tasks[-1].arrival_s
    for _ in range(EVENTS):
        free = {f"node{at:02}": 0 for at in range(PLATFORM.nodes)}
        running = []
        share = draw.random() ** 2
        for name in free:
            free[name] = sum(draw.random() < share for _ in range(PLATFORM.gpus_per_node))
        for at, name in enumerate(free):
            busy = PLATFORM.gpus_per_node - free[name]
            if busy:
                shape = PLATFORM.shapes[busy - 1]
                end_s = last_s + draw.uniform(0, 7200)
                running.append(Started(WAITING + 1 + at, tasks[0].profile, shape, end_s))
        yield Queue(last_s + draw.uniform(0, 7200), PLATFORM, free, tasks, running)


def run() -> Iterator[Figure]:
    """The slowest event of `genie`; the other schedulers beside it, in the same run."""
    taken: dict[str, list[float]] = {}
    started = 0
    for queue in queues():
        for scheduler in schedulers(tuple({task.profile for task in queue.waiting})):
            began = time.perf_counter()
            plan = scheduler.plan(queue)
            taken.setdefault(scheduler.name, []).append(1e3 * (time.perf_counter() - began))
            assert len(plan) == WAITING, f"{scheduler.name} forgot jobs"
            started += sum(bool(one.nodes) for one in plan) if scheduler.name == "genie" else 0
    ours = taken.pop("genie")
    yield at_most(
        "genie.event_p99", quantile(ours, 0.99), "ms", BAR_MS,
        compared_with=", ".join(f"{name} {median(times):.1f}" for name, times in taken.items()),
        detail={"median": round(median(ours), 2), "max": round(max(ours), 2), "events": EVENTS,
                "waiting": WAITING, "gpus": 128, "started": started, "seed": SEED, **conditions()},
    )  # fmt: skip
