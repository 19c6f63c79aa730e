"""GENIE: shapes, deadlines, order, and who starts."""

from __future__ import annotations

from collections import Counter
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.contract.scheduling import NORMAL, PRIOR, URGENT
from policies.errors import PolicyError
from policies.genie.algorithm import GeniePaper
from policies.genie.dynamic import Genie
from policies.genie.tasks import TaskConstraints, TaskMaker
from policies.performance import Run, Shape, Work, fit
from tests.policies.genie.queues_of_tasks import (
    FREE,
    PLATFORM,
    check,
    check_empty,
    order,
    queue,
    queues,
    started,
    task,
)

BOTH = (GeniePaper(), Genie())


# The platform and its costs.


@pytest.mark.parametrize(
    ("shape", "cost"),
    [(Shape(1, 1), 0.1625), (Shape(1, 4), 0.35), (Shape(4, 1), 0.65), (Shape(4, 4), 1.4)],
)
def test_the_cost_of_a_shape_is_eq_10(shape, cost):
    assert PLATFORM.costs[PLATFORM.index(shape)] == pytest.approx(cost)


def test_a_shape_the_platform_does_not_have_is_refused():
    with pytest.raises(PolicyError, match="shape 5x1; expected at most 4x4"):
        PLATFORM.index(Shape(5, 1))


def test_every_shape_is_found_at_its_index():
    assert [PLATFORM.index(shape) for shape in PLATFORM.shapes] == list(range(16))


# Tasks: classes, deadlines, shapes.

RUNS = [Run(1, 1, 8, 1.0), Run(1, 1, 16, 2.0), Run(1, 2, 8, 1.1), Run(1, 4, 8, 1.2),
        Run(2, 2, 8, 1.5), Run(4, 4, 8, 1.6)]  # fmt: skip
MAKER = TaskMaker(
    PLATFORM,
    {("cnn", "training"): fit("calibrated", RUNS), ("cnn", "inference"): fit("genie", RUNS)},
)


@pytest.mark.parametrize(("service", "times"), [(URGENT, 0), (PRIOR, 1), (NORMAL, 2)])
def test_a_deadline_is_arrival_plus_the_class_times_the_single_gpu_latency(service, times):
    made = MAKER.task(1, Work("cnn", 16, 100), 50.0, TaskConstraints(service))
    single = made.latency_s[PLATFORM.index(Shape(1, 1))]
    assert made.deadline_s == pytest.approx(50.0 + times * single)
    assert single == pytest.approx(200, rel=0.1)


def test_a_batch_too_large_for_one_gpu_takes_its_class_from_the_smallest_shape_it_fits():
    work = Work("cnn", 60, 10)
    assert MAKER.smallest(work) == Shape(1, 4)
    made = MAKER.task(1, work, 0.0, TaskConstraints(PRIOR))
    assert made.deadline_s == pytest.approx(made.latency_s[PLATFORM.index(Shape(1, 4))])
    assert made.latency_s[PLATFORM.index(Shape(1, 2))] == inf
    assert made.ratio[PLATFORM.index(Shape(1, 2))] == -inf
    assert made.requested == Shape(1, 4)


def test_the_ratio_is_the_rate_over_the_cost():
    made = MAKER.task(1, Work("cnn", 16, 100), 0.0)
    at = PLATFORM.index(Shape(2, 2))
    assert made.ratio[at] == pytest.approx(1600 / made.latency_s[at] / PLATFORM.costs[at])


def test_a_shape_the_user_fixed_is_the_only_one():
    made = MAKER.task(1, Work("cnn", 16, 100), 0.0, TaskConstraints(shapes=(Shape(2, 2),)))
    assert np.flatnonzero(np.isfinite(made.latency_s)).tolist() == [PLATFORM.index(Shape(2, 2))]
    assert made.requested == Shape(2, 2)


def test_a_fixed_shape_that_is_too_small_is_refused():
    fixed = TaskConstraints(shapes=(Shape(1, 2),))
    with pytest.raises(PolicyError, match="does not fit 1x2; expected 1x4 or more"):
        MAKER.task(1, Work("cnn", 60, 1), 0.0, fixed)


# Both schedulers.


@settings(max_examples=200)
@given(queues(), st.sampled_from(BOTH), st.randoms(use_true_random=False))
def test_every_job_is_planned_once_and_no_gpu_twice_in_whatever_order(asked, scheduler, draw):
    check(scheduler, asked, draw)


@settings(max_examples=100)
@given(queues(), st.sampled_from(BOTH))
def test_on_an_empty_cluster_somebody_starts(asked, scheduler):
    check_empty(scheduler, asked)


def test_a_shape_takes_the_fullest_nodes_with_room():
    asked = queue(task(1, shapes=(Shape(2, 1),)), free={"a": 4, "b": 1, "c": 0, "d": 2})
    for scheduler in BOTH:
        (plan,) = scheduler.plan(asked)
        assert plan.nodes == ("b", "d")


# Algorithm 1 as printed.


def test_the_highest_ratio_among_those_in_time_is_chosen():
    relaxed, pressed = task(1, scale=0.2), task(1, scale=0.2, deadline_s=70.0)
    assert started(GeniePaper(), relaxed) == {1: "1x1"}
    assert started(GeniePaper(), pressed) == {1: "1x4"}


def test_without_a_shape_in_time_the_highest_ratio_of_all_is():
    assert started(GeniePaper(), task(1, scale=0.2, deadline_s=1.0)) == {1: "1x1"}


def test_the_shortest_waiting_allowance_goes_first_and_may_be_negative():
    late, close, far = (task(at, deadline_s=end) for at, end in ((1, -50), (2, 120), (3, 900)))
    plan = GeniePaper().plan(queue(far, close, late))
    assert [one.task.job_id for one in plan] == [1, 2, 3]
    assert plan[0].allowance_s == pytest.approx(-50 - plan[0].task.latency_s[3])


@settings(max_examples=100)
@given(queues())
def test_as_printed_equals_the_printed_loops(asked):
    rows = []
    for one in asked.waiting:
        every = range(len(PLATFORM.shapes))
        meeting = [at for at in every if one.latency_s[at] + asked.now_s <= one.deadline_s]
        best = max(meeting or every, key=lambda at: (one.ratio[at], -at))
        rows.append((one.deadline_s - (one.latency_s[best] + asked.now_s), one.job_id, best))
    plan = GeniePaper().plan(asked)
    assert [(one.task.job_id, PLATFORM.index(one.shape)) for one in plan] == [
        (job_id, best) for _, job_id, best in sorted(rows)
    ]


# Ours.


def test_urgent_overtakes_normal():
    normal, urgent = task(1, deadline_s=150), task(2, deadline_s=0.0, service=URGENT)
    assert order(Genie(), normal, urgent) == [2, 1]
    assert order(GeniePaper(), normal, urgent) == [2, 1]


def test_a_task_that_is_late_does_not_make_others_late():
    late, in_time = (
        task(at, deadline_s=end, shapes=(Shape(1, 1),)) for at, end in ((1, -500), (2, 130))
    )
    one_gpu = {"n0": 1, "n1": 0, "n2": 0, "n3": 0}
    assert started(GeniePaper(), late, in_time, free=one_gpu) == {1: "1x1"}
    assert started(Genie(), late, in_time, free=one_gpu) == {2: "1x1"}


def test_when_not_all_can_be_in_time_the_largest_waits():
    """16 GPUs until 110 s hold 1,760 GPU seconds: two of 800, not one of 1,500 beside them."""
    large = task(1, single_s=1500, deadline_s=110)
    small = [task(at, single_s=800, deadline_s=110) for at in (2, 3)]
    assert order(Genie(), large, *small)[-1] == 1
    assert order(Genie(), large)[0] == 1


def test_a_shape_that_fits_now_is_taken_instead_of_waiting_for_a_better_one():
    one_and_one = {"n0": 1, "n1": 1, "n2": 0, "n3": 0}
    assert started(GeniePaper(), task(1), free=one_and_one) == {}
    assert started(Genie(), task(1), free=one_and_one) == {1: "1x1"}


def test_a_task_waits_rather_than_start_with_a_shape_that_would_be_late():
    pressed = task(1, deadline_s=60.0, scale=1.0)
    assert started(Genie(), pressed, free={"n0": 1, "n1": 0, "n2": 0, "n3": 0}) == {}
    assert started(Genie(), pressed, free={"n0": 2, "n1": 0, "n2": 0, "n3": 0}) == {1: "1x2"}


def test_deadlines_are_met_with_a_margin_for_what_predictions_are_off():
    assert started(Genie(), task(1, deadline_s=105.0, scale=0.2)) != {1: "1x1"}
    assert started(Genie(margin=1.0), task(1, deadline_s=105.0, scale=0.2)) == {1: "1x1"}


def test_nobody_waits_for_ever():
    forgotten, fresh = task(1, deadline_s=-8 * 86400.0), task(2, deadline_s=150)
    assert order(Genie(), forgotten, fresh) == [1, 2]
    assert order(Genie(patience_s=inf), forgotten, fresh) == [2, 1]


def test_an_urgent_task_is_passed_for_an_hour_at_most():
    wide = task(1, deadline_s=0.0, service=URGENT, shapes=(Shape(4, 4),))
    small = task(2, deadline_s=9000)
    busy = {**FREE, "n3": 3}
    assert set(started(Genie(), wide, small, free=busy, now_s=3599)) == {2}
    assert started(Genie(), wide, small, free=busy, now_s=3601) == {}


def test_nobody_passes_a_task_that_waited_too_long():
    wide = task(1, deadline_s=-8 * 86400.0, shapes=(Shape(4, 4),))
    busy = {**FREE, "n3": 3}
    assert started(Genie(), wide, task(2, deadline_s=150), free=busy) == {}
    assert started(Genie(), wide, task(2, deadline_s=150)) == {1: "4x4"}
    assert set(started(Genie(patience_s=inf), wide, task(2, deadline_s=150), free=busy)) == {2}


@settings(max_examples=100)
@given(queues())
def test_whoever_could_start_in_time_does_unless_the_gpus_are_taken(asked):
    plan = Genie(patience_s=inf, urgent_patience_s=inf).plan(asked)
    left = Counter(asked.free)
    for one in plan:
        left.subtract(dict.fromkeys(one.nodes, one.shape.gpus_per_node))
    fitting = [
        sum(free >= shape.gpus_per_node for free in left.values()) >= shape.nodes
        for shape in PLATFORM.shapes
    ]
    for one in plan:
        in_time = one.task.latency_s * 1.1 + asked.now_s <= one.task.deadline_s
        if not one.nodes:
            wanted = in_time if in_time.any() else np.isfinite(one.task.latency_s)
            assert not (wanted & fitting).any()
        elif in_time.any():
            assert in_time[PLATFORM.index(one.shape)]
