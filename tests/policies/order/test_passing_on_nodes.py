"""For how long the first in line is held up where GPUs are those of nodes: seeded queues."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from gres_topology.catalog import load
from policies.order.passing import Passing
from simulation.core.jobs import SimJob
from simulation.core.queue_order import PassingQueue
from simulation.core.record import Record
from simulation.models.placing import Simulator
from simulation.stock import policy_named

BOUND_S, NODES, GPUS = 10.0, 4, 8
MACHINE = load("dgx1v")


class Watched(PassingQueue):
    """Remembers everybody who passed."""

    def __init__(self, rule: Passing) -> None:
        super().__init__(rule)
        self.passers: set[int] = set()

    def started(self, job: SimJob, now_s: float) -> None:
        super().started(job, now_s)
        self.passers |= self._passed


def queue(seed: int) -> list[SimJob]:
    """Users whose jobs mostly take seconds, with limits from exact to useless; a few take long."""
    draw, at_s, jobs = Random(seed), 0.0, []
    for number in range(150):
        at_s += draw.choice((0.0, 0.5, 1.0, 3.0))
        took_s = draw.choice((0.25, 1.0, 2.0, 2.0, 5.0, 9.5, 30.0, 100.0))
        sizes = draw.choice(((1,), (1,), (2,), (3,), (5,), (8,), (8, 8)))
        limit_s = took_s * draw.choice((1.0, 1.0, 1.5, 2.0, 20.0))
        user = draw.choice("abc")
        jobs.append(SimJob(number, sizes, took_s, at_s, walltime_s=limit_s, user=user))
    return jobs


def held_up_s(records: list[Record], passers: set[int]) -> Counter[int]:
    """Job -> for how long it was first in line, and would have fitted but for those that passed it.

    By the records alone: who held which GPUs of which node, moment by moment.
    """
    held: Counter[int] = Counter()
    by_order = sorted(records, key=lambda one: one.job.job_id)
    moments = sorted({at for one in records for at in (one.job.submit_s, one.start_s, one.end_s)})
    for at_s, until_s in pairwise(moments):
        line = (one for one in by_order if one.job.submit_s <= at_s < one.start_s)
        if (first := next(line, None)) is None:
            continue
        free = dict.fromkeys((f"n{number}" for number in range(NODES)), GPUS)
        for one in records:
            later = one.job.job_id > first.job.job_id
            is_gone = one.job.job_id in passers and later
            if one.start_s <= at_s < one.end_s and not is_gone:
                for name, gpus in one.placement.gpus.items():
                    free[name] -= len(gpus)
        wanted = sorted(first.job.gpus_per_node, reverse=True)
        there = sorted(free.values(), reverse=True)
        if all(count <= most for count, most in zip(wanted, there, strict=False)):
            held[first.job.job_id] += until_s - at_s
    return held


@pytest.mark.parametrize("by", ["limits", "predictions"])
@pytest.mark.parametrize("easy", [False, True], ids=["in order", "backfill"])
@pytest.mark.parametrize("seed", range(8))
def test_on_nodes_nobody_is_held_up_by_those_that_passed_for_longer_than_promised(seed, easy, by):
    passing = Watched(Passing(BOUND_S, by))
    nodes = {f"n{number}": MACHINE for number in range(NODES)}
    jobs = queue(seed)

    run = Simulator(nodes, policy_named("first-fit"), easy=easy, passing=passing).run(jobs)

    assert len(run.records) == len(jobs)
    assert passing.passers
    held = held_up_s(run.records, passing.passers)
    assert max(held.values(), default=0.0) <= passing.rule.promise_s + 1e-6
