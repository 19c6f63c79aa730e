"""The schedulers that GENIE is compared with: their order, their shapes, and who starts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from papers.experiments.genie.schedulers import (
    FIFO,
    MIN_MIN,
    TETRIS_CER,
    TETRIS_PERF,
    WEIGHTED_FAIR,
    Capacity,
    schedulers,
)
from policies.contract.scheduling import Started
from policies.performance import Shape
from tests.policies.genie.queues_of_tasks import (
    FREE,
    PLATFORM,
    PROFILES,
    check,
    check_empty,
    order,
    queue,
    queues,
    started,
    task,
)

ALL = schedulers(PROFILES)


def test_schedulers_have_names_of_their_own():
    assert len({scheduler.name for scheduler in ALL}) == len(ALL) == 8


@settings(max_examples=200)
@given(queues(), st.sampled_from(ALL[:-2]), st.randoms(use_true_random=False))
def test_every_job_is_planned_once_and_no_gpu_twice_in_whatever_order(asked, scheduler, draw):
    check(scheduler, asked, draw)


@settings(max_examples=100)
@given(queues(), st.sampled_from(ALL[:-2]))
def test_on_an_empty_cluster_somebody_starts(asked, scheduler):
    check_empty(scheduler, asked)


def test_black_boxes_order_by_arrival_by_deadline_and_by_their_mean():
    first = task(1, arrival_s=0, deadline_s=900)
    second = task(2, arrival_s=100, deadline_s=400)
    third = task(3, arrival_s=300, deadline_s=310)
    assert order(FIFO, third, second, first) == [1, 2, 3]
    assert order(MIN_MIN, first, second, third) == [3, 2, 1]
    assert order(WEIGHTED_FAIR, first, second, third) == [2, 3, 1]


def test_black_boxes_stop_at_the_first_that_does_not_fit():
    wide = task(1, requested=Shape(4, 4))
    small = task(2)
    assert started(FIFO, wide, small, free={**FREE, "n0": 3}) == {}


def test_a_shape_takes_the_fullest_nodes_with_room():
    (plan,) = FIFO.plan(
        queue(task(1, requested=Shape(2, 1)), free={"a": 4, "b": 1, "c": 0, "d": 2})
    )
    assert plan.nodes == ("b", "d")


def test_capacity_keeps_every_kind_to_its_own_gpus():
    capacity = Capacity(("cnn", "rnn", "mlp"))
    assert capacity.shares(PLATFORM) == {"cnn": 6, "rnn": 5, "mlp": 5}
    cnns = [task(at, requested=Shape(1, 2)) for at in range(1, 6)]
    rnn = task(9, profile="rnn", requested=Shape(1, 2))
    assert set(started(capacity, *cnns, rnn)) == {1, 2, 3, 9}
    busy = [Started(50, "cnn", Shape(1, 4), 99.0)]
    assert set(started(capacity, *cnns, rnn, running=busy)) == {1, 9}


def test_capacity_cuts_a_wish_to_its_share_unless_the_batch_needs_more():
    capacity = Capacity(("a", "b", "c", "d", "cnn", "rnn"))
    assert started(capacity, task(1, requested=Shape(2, 4))) == {1: "1x2"}
    assert started(capacity, task(1, shapes=(Shape(2, 2),))) == {1: "2x2"}


def test_tetris_perf_takes_the_fastest_shape_and_tetris_cer_the_most_cost_effective():
    slow_to_scale = task(1, scale=0.2)
    assert started(TETRIS_PERF, slow_to_scale) == {1: "4x4"}
    assert started(TETRIS_CER, slow_to_scale) == {1: "1x1"}
    assert started(TETRIS_CER, task(1, scale=1.0)) == {1: "1x4"}


def test_tetris_lets_whoever_fits_pass():
    wide, small = task(1, shapes=(Shape(4, 4),)), task(2, scale=0.01)
    assert started(TETRIS_CER, wide, small, free={**FREE, "n0": 1}) == {2: "1x1"}


def test_capacity_serves_a_kind_it_was_not_told_of_one_job_at_a_time():
    strangers = [task(at, profile="mlp") for at in (1, 2)]
    assert started(Capacity(("cnn", "rnn")), *strangers) == {1: "1x1"}
