"""What jobs communicate that say nothing is learned from their run times, by nobody's orders."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

import pytest
from machines import asked_by, cluster, machine

from policies import Ahead, Placement, Release, Request, Wait, mask_of
from policies.contract.policy import UNKNOWN_SITE
from policies.hints import to_running
from policies.horizon.policy import Horizon
from policies.horizon.settings import HorizonSettings
from policies.horizon.usual import FEWEST, UsualCommunication
from policies.registry import registry

DGX1V, MI250X = machine("dgx1v"), machine("mi250x")
#: Sets of two GPUs of a DGX-1V with all and with a quarter of the ideal bandwidth.
BEST, WORST = mask_of([0, 3]), mask_of([0, 5])
USERS = 8
HORIZON = registry.get("horizon")


def longer(communication: float, mask: int) -> float:
    """How much longer a job runs on these GPUs; the figures are those of the machine's page."""
    return 1.0 if mask == BEST else 1 - communication + communication / 0.258


def jobs(seed: int, communication: float, count: int) -> Iterator[tuple[int, float, float, int]]:
    """GPUs, run time, limit and user: most have good GPUs, and limits say little."""
    draw = Random(seed)
    for _ in range(count):
        mask = BEST if draw.random() < 0.7 else WORST
        lasts_s = 1200 * math.exp(draw.gauss(0, 0.7))
        limit_s = 4.5 * lasts_s * draw.uniform(1.0, 4.0)
        yield mask, lasts_s * longer(communication, mask), limit_s, draw.randrange(USERS)


def learned(seed: int, communication: float, count: int) -> UsualCommunication:
    usual = UsualCommunication()
    for mask, ran_s, limit_s, user in jobs(seed, communication, count):
        usual.ended(DGX1V, mask, "ring", ran_s, limit_s, user)
    return usual


@pytest.mark.parametrize("seed", range(8))
def test_three_hundred_jobs_tell_what_they_communicate(seed):
    """With limits of one to four times the run time; 0 is told from the usual sooner."""
    for truth in (0.0, 0.3, 0.6):
        assert learned(seed, truth, 300).share == pytest.approx(truth, abs=0.15)
    assert learned(seed, 0.0, 150).share < 0.2 < learned(seed, 0.3, 300).share


def test_before_enough_have_ended_nothing_is_told():
    assert learned(1, 0.3, FEWEST - 1).share is None
    assert learned(1, 0.3, FEWEST).share is not None


@pytest.mark.parametrize(
    ("topology", "mask", "ran_s", "limit_s"),
    [
        (DGX1V, 1, 100.0, 600.0),
        (machine("dgx-h100"), 3, 100.0, 600.0),
        (DGX1V, BEST, 600.0, 600.0),
        (DGX1V, BEST, 0.0, 600.0),
        (DGX1V, BEST, -5.0, 600.0),
        (DGX1V, BEST, 100.0, 0.0),
    ],
    ids=[
        "one GPU",
        "all linked alike",
        "up to its limit",
        "no time",
        "a clock set back",
        "no limit",
    ],
)
def test_jobs_that_tell_nothing_are_passed_over(topology, mask, ran_s, limit_s):
    usual = learned(1, 0.3, FEWEST - 1)
    for _ in range(5):
        usual.ended(topology, mask, "ring", ran_s, limit_s, 1)
    assert usual.share is None


@pytest.mark.parametrize("truth", [0.0, 0.3])
@pytest.mark.parametrize("lie", [0.0, 0.7])
@pytest.mark.parametrize("many", [100, 3000])
def test_one_user_does_not_teach_what_others_are_taken_for(truth, lie, many):
    """Mallory's jobs run as if by the law without any chance, as many as she likes."""
    honest = learned(3, truth, 300).share
    usual = UsualCommunication()
    for at in range(many):
        mask = (BEST, WORST)[at % 2]
        usual.ended(DGX1V, mask, "ring", 60 * longer(lie, mask), 3600.0, 666)
    for mask, ran_s, limit_s, user in jobs(3, truth, 300):
        usual.ended(DGX1V, mask, "ring", ran_s, limit_s, user)
    assert usual.share == pytest.approx(honest, abs=0.15)


@pytest.mark.parametrize(("users", "is_told"), [(1, False), (3, False), (4, True)])
def test_fewer_than_four_users_tell_nothing(users, is_told):
    usual = UsualCommunication()
    for mask, ran_s, limit_s, user in jobs(4, 0.0, 300):
        usual.ended(DGX1V, mask, "ring", ran_s, limit_s, user % users)
    assert (usual.share is not None) == is_told


def test_users_of_one_job_each_do_not_make_up_for_those_who_are_missing():
    usual = UsualCommunication()
    for user in range(200):
        usual.ended(DGX1V, (BEST, WORST)[user % 3 == 0], "ring", 1000.0, 9000.0, user)
    for at in range(20):
        mask = (BEST, WORST)[at % 2]
        usual.ended(DGX1V, mask, "ring", 60 * longer(0.7, mask), 3600.0, 666)
    assert usual.share is None


def test_what_machines_and_sizes_differ_in_is_not_taken_for_the_links():
    """Larger jobs, and those of another kind of node, run ten times as long on worse GPUs."""
    usual = UsualCommunication()
    slow = mask_of([0, 1, 2])
    for mask, ran_s, limit_s, user in jobs(5, 0.0, 300):
        usual.ended(DGX1V, mask, "ring", ran_s, limit_s, user)
        usual.ended(DGX1V, slow, "ring", min(10 * ran_s, 0.9 * limit_s), limit_s, user)
        usual.ended(MI250X, mask_of([0, 5]), "ring", ran_s / 10, limit_s, user)
    assert usual.share < 0.15


@pytest.mark.parametrize(
    ("values", "pattern"),
    [
        ({}, "ring"),
        ({"pattern": "tree"}, "tree"),
        ({"communication": "0.1"}, ""),
        ({"profile": "bert"}, ""),
        ({"sensitive": "no"}, ""),
        ({"pattern": "halo"}, ""),
    ],
)
def test_only_jobs_that_do_not_say_are_learned_from(values, pattern):
    assert to_running(values, 1, {}).untold == pattern


RELEASE = [Release(120.0, "n", 1 << 3, 0.0, 1)]


def test_what_is_learned_decides_for_jobs_that_do_not_say():
    """Who communicates nothing neither waits nor breaks up a node; a hint goes before."""

    def answer(usual: float | None, request: Request, policy: Horizon = HORIZON) -> object:
        return policy.place(request, cluster([0, 5], Ahead(3600.0, (), RELEASE, usual=usual)))

    silent = Request((2,))
    assert isinstance(answer(None, silent), Wait)
    assert isinstance(answer(0.0, silent), Placement)
    assert isinstance(answer(0.0, asked_by("0.4")), Wait)
    said = "communication unknown, {} % of its time taken ({})"
    assert said.format(20, "as earlier jobs here show") in answer(0.2, silent).reason
    # More than the usual is not believed: others would wait in vain.
    assert said.format(30, "3 to 67 usual") in answer(0.7, silent).reason
    fixed = Horizon(UNKNOWN_SITE, HorizonSettings(learn=False))
    assert isinstance(answer(0.0, silent, fixed), Wait)
    never = Horizon(UNKNOWN_SITE, HorizonSettings(usual_communication=0.0))
    assert isinstance(answer(0.4, silent, never), Placement)
    assert isinstance(answer(None, silent), Wait), "what was learned is of one question"
