"""Who may pass, and that nobody is held up, or starts later, by more than the bound."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.order.arrivals import Arrivals
from policies.order.durations import Known
from policies.order.passing import Passing
from simulation.core.jobs import SimJob
from simulation.experiments.order.pool import Pool

GPUS, BOUND_S = 8, 10.0


@st.composite
def queues(draw: st.DrawFn) -> list[SimJob]:
    """Jobs that come close together, so that they wait, with limits from exact to useless."""
    jobs, at_s = [], 0.0
    for number in range(draw(st.integers(2, 40))):
        at_s += draw(st.sampled_from((0.0, 0.5, 1.0, 3.0, 9.0)))
        took_s = draw(st.sampled_from((0.25, 1.0, 2.0, 5.0, 9.5, 10.0, 30.0, 100.0)))
        size = draw(st.sampled_from((1, 1, 1, 2, 3, 5, 8)))
        limit_s = took_s * draw(st.sampled_from((1.0, 1.0, 2.0, 20.0)))
        user = draw(st.sampled_from("ab"))
        jobs.append(SimJob(number, (size,), took_s, at_s, walltime_s=limit_s, user=user))
    return jobs


@given(queues())
@settings(max_examples=400)
def test_nobody_starts_later_than_in_the_order_of_arrival_plus_the_bound(jobs: list[SimJob]):
    arrival = Pool(GPUS).run(jobs)

    starts = Pool(GPUS, passing=Passing(BOUND_S), arrivals=Arrivals(GPUS)).run(jobs)

    assert starts.keys() == arrival.keys()
    assert max(starts[job] - arrival[job] for job in starts) <= BOUND_S + 1e-6


@given(queues(), st.booleans(), st.booleans())
@settings(max_examples=400)
def test_nobody_is_held_up_by_those_that_passed_it_for_longer(
    jobs: list[SimJob], backfill: bool, told: bool
):
    pool = Pool(GPUS, backfill=backfill, passing=Passing(BOUND_S), told=told)

    starts = pool.run(jobs)

    assert len(starts) == len(jobs)
    assert max(pool.held_up_s.values(), default=0.0) <= BOUND_S + 1e-6


@given(queues())
@settings(max_examples=200)
def test_starts_in_the_order_of_arrival_are_never_told_too_late(jobs: list[SimJob]):
    arrival = Pool(GPUS).run(jobs)
    told = Arrivals(GPUS)

    class Listening(Arrivals):
        def due_s(self, job_id: int, now_s: float) -> float:
            due_s = told.due_s(job_id, now_s)
            assert due_s <= max(now_s, arrival[job_id]) + 1e-6
            assert min(due_s, now_s) <= arrival[job_id] + 1e-6
            return due_s

        submitted, started, ended = told.submitted, told.started, told.ended  # type: ignore[assignment]

    Pool(GPUS, passing=Passing(BOUND_S), arrivals=Listening(GPUS)).run(jobs)


def test_without_limits_that_fit_nobody_passes():
    jobs = [
        SimJob(number, (1 + 7 * (number % 2),), 5.0, number / 10, walltime_s=BOUND_S + 1)
        for number in range(20)
    ]

    arrival = Pool(GPUS).run(jobs)
    assert Pool(GPUS, passing=Passing(BOUND_S)).run(jobs) == arrival
    # Who knows that they take five seconds lets those of one GPU pass.
    assert Pool(GPUS, passing=Passing(BOUND_S), told=True).run(jobs) != arrival


def test_a_short_job_passes_and_the_least_work_goes_first():
    rule = Passing(600.0)
    for seconds in (100.0, 110.0, 120.0):
        rule.learning.durations.ended(Known(user="quick", size=1), seconds)
        rule.learning.durations.ended(Known(user="slow", size=1), 5 * seconds)
    rule.submitted(1, Known(user="slow", size=1, limit_s=590))
    rule.submitted(2, Known(user="quick", size=1, limit_s=600))
    rule.submitted(3, Known(user="quick", size=1, limit_s=601))
    rule.submitted(4, Known(user="quick", size=1))

    assert rule.may_pass(50.0, [1, 2, 3, 4], 50.0) == [2, 1]
    assert rule.may_pass(45.0, [1, 2, 3, 4], 50.0) == [1]
    assert rule.may_pass(-550.0, [1, 2, 3, 4], 50.0) == []


def test_by_predictions_a_loose_limit_does_not_keep_a_short_job_back():
    rule = Passing(600.0, by="predictions")
    for _ in range(6):
        rule.learning.durations.ended(Known(user="quick", size=1), 100.0)
    rule.submitted(1, Known(user="quick", size=1, limit_s=86_400))
    rule.submitted(2, Known(user="quick", size=1, limit_s=None))

    assert rule.may_pass(0.0, [1, 2], 0.0) == [1, 2]
    assert replace(rule, by="limits")._jobs  # the same jobs, whatever counts


def test_the_first_in_line_is_due_from_the_first_moment_at_which_it_could_start():
    rule = Passing(600.0)

    assert rule.due_s(7, False, 10.0) == 10.0
    assert rule.due_s(7, True, 20.0) == 20.0
    assert rule.due_s(7, False, 30.0) == 20.0
    rule.started(7)
    assert rule.due_s(7, False, 40.0) == 40.0
