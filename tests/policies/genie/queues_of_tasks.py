"""Queues of jobs to be shaped, and what every scheduler of them holds to."""

from __future__ import annotations

import random
from collections import Counter
from math import inf

import numpy as np
from hypothesis import strategies as st

from policies.contract.scheduling import (
    NORMAL,
    PRIOR,
    URGENT,
    Platform,
    Queue,
    Scheduler,
    Started,
    Task,
)
from policies.performance import Shape

PLATFORM = Platform(4, 4)
FREE = {f"n{at}": 4 for at in range(4)}
PROFILES = ("cnn", "rnn")


def task(job_id, single_s=100.0, deadline_s=1e6, arrival_s=0.0, scale=1.0, **more):
    """A job that takes `single_s` on one GPU and gains `scale` of every further GPU."""
    latency = single_s / (1 + scale * (PLATFORM.gpu_counts - 1))
    fixed = more.pop("shapes", None)
    if fixed:
        allowed = [shape in fixed for shape in PLATFORM.shapes]
        latency = np.where(allowed, latency, inf)
    ratio = np.where(np.isfinite(latency), 1 / latency / PLATFORM.costs, -inf)
    words = {"profile": "cnn", "requested": (fixed or [Shape(1, 1)])[0], **more}
    return Task(
        job_id=job_id,
        arrival_s=arrival_s,
        deadline_s=deadline_s,
        latency_s=latency,
        ratio=ratio,
        **words,
    )


def queue(*tasks, now_s=0.0, free=FREE, running=()):
    return Queue(now_s, PLATFORM, free, tasks, running)


def order(scheduler, *tasks, **more):
    return [one.task.job_id for one in scheduler.plan(queue(*tasks, **more))]


def started(scheduler, *tasks, **more):
    return {
        one.task.job_id: str(one.shape)
        for one in scheduler.plan(queue(*tasks, **more))
        if one.nodes
    }


@st.composite
def queues(draw):
    free = {f"n{at}": draw(st.integers(0, 4)) for at in range(4)}
    tasks = [
        task(
            at,
            single_s=draw(st.floats(1, 1e4)),
            deadline_s=draw(st.floats(-1e4, 2e4)),
            arrival_s=draw(st.floats(-2e4, 0)),
            scale=draw(st.floats(0.01, 1)),
            profile=draw(st.sampled_from(PROFILES)),
            service=draw(st.sampled_from((URGENT, PRIOR, NORMAL))),
            shapes=draw(st.sampled_from((None, None, (Shape(2, 2),), (Shape(1, 3),)))),
        )
        for at in range(draw(st.integers(0, 12)))
    ]
    running = [
        Started(100 + at, draw(st.sampled_from(PROFILES)), Shape(1, 4 - count), 500.0)
        for at, count in enumerate(free.values())
        if count < 4
    ]
    return queue(*tasks, free=free, running=running)


def check(scheduler: Scheduler, asked: Queue, draw: random.Random) -> None:
    """It plans every job once and no GPU twice, in whatever order jobs are given."""
    before = dict(asked.free)
    plan = scheduler.plan(asked)
    assert Counter(one.task.job_id for one in plan) == Counter(one.job_id for one in asked.waiting)
    used = Counter()
    for one in plan:
        assert np.isfinite(one.task.latency_s[PLATFORM.index(one.shape)])
        if one.nodes:
            assert len(set(one.nodes)) == len(one.nodes) == one.shape.nodes
            used.update(dict.fromkeys(one.nodes, one.shape.gpus_per_node))
    assert all(used[name] <= free for name, free in before.items())
    assert asked.free == before
    again = scheduler.plan(asked)
    assert [(one.task.job_id, one.shape, one.nodes) for one in again] == [
        (one.task.job_id, one.shape, one.nodes) for one in plan
    ]
    mixed = list(asked.waiting)
    draw.shuffle(mixed)
    other = Queue(asked.now_s, PLATFORM, asked.free, mixed, asked.running)
    assert [one.task.job_id for one in scheduler.plan(other)] == [one.task.job_id for one in plan]


def check_empty(scheduler: Scheduler, asked: Queue) -> None:
    """On an empty cluster somebody starts; nobody's plan is empty."""
    assert isinstance(scheduler, Scheduler)
    assert scheduler.plan(queue()) == []
    empty = Queue(asked.now_s, PLATFORM, FREE, asked.waiting)
    assert not asked.waiting or any(one.nodes for one in scheduler.plan(empty))
