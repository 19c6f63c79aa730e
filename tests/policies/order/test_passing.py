"""Who may pass, and that nobody is held up, or starts later, by more than the bound."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.experiments.order.arrivals import Arrivals
from papers.experiments.order.pool import Key, Pool
from policies.order.durations import ENOUGH, KnownJob
from policies.order.passing import LOST_S, Passing, Reckoned
from simulation.core.jobs import SimJob

GPUS, BOUND_S = 8, 10.0
ANN = KnownJob("ann", size=1)


def by_priority(job: SimJob) -> float:
    """An order in which jobs come before those that are first in line."""
    return float(job.job_id * 17 % 41)


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


@given(
    queues(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(("limits", "predictions")),
    st.sampled_from((None, by_priority)),
)
@settings(max_examples=400)
def test_nobody_is_held_up_by_those_that_passed_it_for_longer(
    jobs: list[SimJob], backfill: bool, told: bool, by: Reckoned, key: Key | None
):
    passing = Passing(BOUND_S, by)
    pool = Pool(GPUS, backfill=backfill, passing=passing, told=told, key=key)

    starts = pool.run(jobs)

    assert len(starts) == len(jobs)
    assert max(pool.held_up_s.values(), default=0.0) <= passing.promise_s + 1e-6


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
        rule.learning.durations.ended(KnownJob(user="quick", size=1), seconds)
        rule.learning.durations.ended(KnownJob(user="slow", size=1), 5 * seconds)
    rule.submitted(1, KnownJob(user="slow", size=1, limit_s=590))
    rule.submitted(2, KnownJob(user="quick", size=1, limit_s=600))
    rule.submitted(3, KnownJob(user="quick", size=1, limit_s=601))
    rule.submitted(4, KnownJob(user="quick", size=1))

    assert rule.may_pass(50.0, [1, 2, 3, 4], 50.0) == [2, 1]
    assert rule.may_pass(45.0, [1, 2, 3, 4], 50.0) == [1]
    assert rule.may_pass(-550.0, [1, 2, 3, 4], 50.0) == []


def by_predictions(seconds: float = 500.0) -> Passing:
    """A rule for a user ann whose jobs took that long."""
    rule = Passing(600.0, by="predictions")
    for _ in range(6):
        rule.learning.durations.ended(ANN, seconds)
    return rule


@pytest.mark.parametrize(
    ("sentence", "known", "passes"),
    [
        ("a limit above the bound, near the prediction", replace(ANN, limit_s=900.0), True),
        ("a limit that says something else", replace(ANN, limit_s=1100.0), False),
        ("a week", replace(ANN, limit_s=604_800.0), False),
        ("no limit at all", ANN, False),
        ("a limit within the bound", replace(ANN, limit_s=600.0), True),
        ("a stranger", KnownJob("bob", size=1, limit_s=900.0), False),
        ("nobody known", KnownJob(size=1, limit_s=900.0), False),
    ],
)
def test_a_prediction_counts_where_the_limit_is_near_it(sentence, known, passes):
    rule = by_predictions()
    rule.submitted(1, known)
    assert (rule.may_pass(0.0, [1], 0.0) == [1]) == passes, sentence
    assert rule.promise_s == 2 * rule.bound_s


def test_few_jobs_of_the_users_own_are_no_prediction():
    rule = Passing(600.0, by="predictions")
    for _ in range(ENOUGH - 1):
        rule.learning.durations.ended(ANN, 500.0)
    rule.submitted(1, replace(ANN, limit_s=900.0))
    assert rule.may_pass(0.0, [1], 0.0) == []


@pytest.mark.parametrize(("runs_s", "is_lost"), [(500.0, False), (600.0, True), (900.0, True)])
@pytest.mark.parametrize("is_over", [False, True], ids=["it runs still", "it ended"])
def test_whose_job_outlived_its_prediction_passes_by_limits_for_a_time(runs_s, is_lost, is_over):
    rule = by_predictions()
    for job_id in (1, 2):
        rule.submitted(job_id, replace(ANN, limit_s=900.0))
    rule.submitted(3, replace(ANN, limit_s=550.0))
    assert 1 in rule.may_pass(0.0, [1], 0.0)
    rule.started(1, 0.0, passed=True)
    if is_over:
        rule.ended(1, runs_s)

    assert set(rule.may_pass(runs_s, [2, 3], runs_s)) == ({3} if is_lost else {2, 3})
    rule.ended(1)
    assert set(rule.may_pass(runs_s + LOST_S, [2, 3], runs_s + LOST_S)) == {2, 3}


def test_what_passed_by_its_limit_may_take_as_long_as_that():
    rule = by_predictions(100.0)
    rule.submitted(1, replace(ANN, limit_s=200.0))
    rule.may_pass(0.0, [1], 0.0)
    rule.started(1, 0.0, passed=True)
    rule.ended(1, 200.0)
    assert rule.learning.outlived == {}


def test_a_job_that_was_requeued_is_not_taken_to_run_on():
    rule = by_predictions()
    rule.submitted(1, replace(ANN, limit_s=900.0))
    rule.may_pass(0.0, [1], 0.0)
    rule.started(1, 0.0, passed=True)
    rule.submitted(1, replace(ANN, limit_s=900.0))
    rule.may_pass(9000.0, [1], 9000.0)
    assert rule.learning.outlived == {}


def test_a_limit_that_was_changed_counts_as_it_is_now():
    rule = Passing(600.0)
    rule.submitted(1, replace(ANN, limit_s=300.0))
    rule.submitted(1, replace(ANN, limit_s=86_400.0))
    assert rule.may_pass(0.0, [1], 0.0) == []


def test_the_first_in_line_is_due_from_the_first_moment_at_which_it_could_start():
    rule = Passing(600.0)

    assert rule.due_s(7, False, 10.0) == 10.0
    assert rule.due_s(7, True, 20.0) == 20.0
    assert rule.due_s(7, False, 30.0) == 20.0
    rule.started(7, 40.0)
    assert rule.due_s(7, False, 40.0) == 40.0
