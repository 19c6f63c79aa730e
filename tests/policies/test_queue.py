"""A queue planned with a policy that decides job by job."""

from __future__ import annotations

import pytest
from machines import machine

from policies import Cluster, NodeState, Placement, Request, Wait
from policies.queue import FifoPlan, fits, without
from policies.registry import built_in


def cluster(**free: int) -> Cluster:
    return Cluster({name: NodeState(name, machine("dgx1v"), mask) for name, mask in free.items()})


def test_jobs_are_placed_in_order_on_what_is_left():
    plan = FifoPlan(built_in().get("first-fit")).plan(
        [Request((3,)), Request((2,))], cluster(a=255)
    )
    assert [answer.gpus for _, answer in plan if isinstance(answer, Placement)] == [
        {"a": (0, 1, 2)},
        {"a": (3, 4)},
    ]


def test_nobody_overtakes_a_job_that_does_not_fit():
    plan = FifoPlan(built_in().get("first-fit")).plan([Request((6,)), Request((1,))], cluster(a=15))
    assert plan == []


def test_a_job_that_waits_by_its_own_wish_lets_others_pass():
    wants = Request((2,), min_utility=0.9)
    plan = FifoPlan(built_in().get("mapa")).plan([wants, Request((1,))], cluster(a=0b100001))
    assert isinstance(plan[0][1], Wait)
    assert isinstance(plan[1][1], Placement)


@pytest.mark.parametrize(
    ("counts", "free", "expected"),
    [
        ((2, 2), {"a": 3, "b": 3}, True),
        ((2, 2), {"a": 15}, False),
        ((4, 1), {"a": 1, "b": 15}, True),
        ((4, 2), {"a": 1, "b": 15}, False),
    ],
    ids=["two nodes", "one node is not two", "each where it fits", "the second is too small"],
)
def test_fits(counts, free, expected):
    assert fits(Request(counts), cluster(**free)) is expected


def test_a_placement_is_taken_off_a_copy():
    before = cluster(a=255)
    after = without(before, Placement({"a": (0, 3)}, "x", "y"))
    assert after.nodes["a"].free == 255 & ~0b1001
    assert before.nodes["a"].free == 255
