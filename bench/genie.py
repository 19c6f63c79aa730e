"""genie: one event, and one submit, with 1,000 waiting jobs on 128 GPUs.

32 nodes of four GPUs, and jobs of the experiments' workload that all wait. At each event some GPUs
have become free (drawn, seed 1), from a single one to all, and all jobs are planned again. A submit
plans them too, with one job more.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench.measure import Figure, at_most, conditions, quantile
from papers.experiments.genie.schedulers import schedulers
from papers.experiments.genie.workload import Spec, make, models
from papers.experiments.pollux import PROFILES
from policies.contract.scheduling import Platform, Queue, Started
from policies.genie.tasks import TaskMaker
from policies.performance.similarity import Traits
from policies.registry import registry
from slurm_plugin.act.enforcement import Select
from slurm_plugin.act.genie.domain_snapshot import DomainSnapshot, Member
from slurm_plugin.act.genie.models import ModelFile, Models
from slurm_plugin.act.genie.shaping import Shaping
from slurm_plugin.act.genie.site import ShapedPartition, ShapingSite
from slurm_plugin.act.lending.at_start.reservations import LoanReservations
from slurm_plugin.base.job_notes.shape import ShapeNote
from slurm_plugin.base.protocol import Ok, SlotsKeys, Submit
from slurm_plugin.config.genie import GenieConfig, GenieRule
from slurm_plugin.config.sections import Rule, WaitingConfig
from slurm_plugin.decide.decide import Decider
from slurm_plugin.learn.speed_models.database import Profile
from slurm_plugin.slurm.interface import QueuedJob

BAR_MS = 50.0
WAITING, EVENTS, SEED = 1000, 100, 1
PLATFORM = Platform(32, 4)


def queues() -> Iterator[Queue]:
    """The events' questions."""
    draw = random.Random(SEED)
    # So dense that all have arrived within a few hours: deadlines are neither all gone nor far.
    tasks = make(Spec(per_hour=500.0, hours=2.5), SEED, TaskMaker(PLATFORM, models())).tasks
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


def shaping_of(queue: Queue) -> Shaping:
    """Shaping that saw this queue at its last poll."""
    known = models()
    profiles = tuple(
        Profile(Traits(name), task, model, ()) for (name, task), model in known.items()
    )
    shelf = ModelFile(Path("nowhere.db"))
    shelf.models = Models(profiles, Path("nowhere.db"))
    nodes = tuple(queue.free)
    domain = ShapedPartition("dl", GenieRule(nodes), PLATFORM, TaskMaker(PLATFORM, shelf.models))
    rule = Rule("enforce", "mapa")
    waiting = WaitingConfig(10, 600, 60)
    decider = Decider({}, lambda *_: rule, waiting, registry.get)
    site = ShapingSite(GenieConfig(Path("nowhere.db")), shelf, {"dl": domain})
    shaping = Shaping(
        Select(decider, LoanReservations()), site, lambda *_: rule, clock=lambda: queue.now_s
    )
    members = [
        Member(QueuedJob(task.job_id), ShapeNote(task.requested), task) for task in queue.waiting
    ]
    shaping.snapshots["dl"] = DomainSnapshot(
        domain, queue.now_s, dict(queue.free), members, list(queue.running)
    )
    return shaping


def submits() -> list[float]:
    """Milliseconds of one submit per event."""
    taken = []
    hint = f"policy=genie,profile={PROFILES[0]},batch=64,iterations=10000"
    asked = Submit(1, 1000, 0, 0, 0, 0, 0, "", "", "dl", "", hint, SlotsKeys("node"), shape=1)
    one: Shaping | None = None
    for queue in queues():
        one = one or shaping_of(queue)
        before = one.snapshots["dl"]
        one.snapshots["dl"] = replace(
            before, at=queue.now_s, free=dict(queue.free), running=list(queue.running)
        )
        one.clock = lambda now=queue.now_s: now  # type: ignore[misc]
        one.promises.clear()
        began = time.perf_counter()
        answer = one.on_submit(asked)
        taken.append(1e3 * (time.perf_counter() - began))
        assert isinstance(answer, Ok), answer
    return taken


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
    took = submits()
    yield at_most(
        "genie.submit_p99", quantile(took, 0.99), "ms", BAR_MS,
        compared_with=f"one event in the same run: {median(ours):.1f} (median)",
        detail={"median": round(median(took), 2), "max": round(max(took), 2),
                "submits": EVENTS, "waiting": WAITING, "seed": SEED, **conditions()},
    )  # fmt: skip
