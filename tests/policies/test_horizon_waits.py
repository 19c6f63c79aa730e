"""How far a wait of horizon's looks, for which nodes, and what it tells of others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from machines import asked_by, cluster, machine

from gres_topology.impaired import impaired
from gres_topology.topology import Impairment
from policies import (
    Ahead,
    Cluster,
    NodeState,
    Placement,
    Release,
    Request,
    Wait,
    WaitingJob,
    mask_of,
)
from policies.registry import registry

HORIZON = registry.get("horizon")
HOUR_S = 3600.0
FREE = [0, 5]


def test_a_wait_looks_no_further_than_a_part_of_what_it_can_save():
    """A run of an hour has 0.12 (1 / 0.26 - 1) of it, 21 minutes, to gain by GPU 3."""
    for ends_s, waits in ((200.0, True), (450.0, False)):
        release = [Release(ends_s, "n", 1 << 3, 0.0, 1)]
        answer = HORIZON.place(asked_by("0.12"), cluster(FREE, Ahead(HOUR_S, (), release)))
        assert isinstance(answer, Wait) == waits


@pytest.mark.parametrize("full", ["dgx-h100", "dgx-a100", "a100-pcie-bridged"])
@pytest.mark.parametrize("kind", ["l40s-8", "minsky", "a100-pcie-bridged"])
@pytest.mark.parametrize("count", [2, 4])
def test_no_job_waits_for_gpus_that_are_free_beside_a_faster_kind_of_node(full, kind, count):
    """One node of a faster kind is full, and nodes of another kind have their best GPUs free."""
    fast, slow = machine(full), machine(kind)
    every = (1 << slow.gpus) - 1
    nodes = {"a": NodeState("a", fast, 0)}
    nodes |= {name: NodeState(name, slow, every) for name in ("b", "c")}
    ends = [Release(150.0, "a", (1 << fast.gpus) - 1, 0.0, 1), Release(150.0, "b", 1, 0.0, 2)]
    ahead = Ahead(36_000.0, (), ends)
    for options in ({}, {"communication": "0.6"}):
        answer = HORIZON.place(Request((count,), options=options), Cluster(nodes, ahead=ahead))
        assert isinstance(answer, Placement)
        assert answer.utility == 1.0


def test_a_job_waits_only_for_gpus_of_the_kind_that_it_would_get():
    """What another kind of node is worth is for weights and types to say."""
    nodes = {
        "a": NodeState("a", machine("mi250x"), 0),
        "b": NodeState("b", machine("dgx1v"), mask_of(FREE)),
    }
    for name, waits in (("a", False), ("b", True)):
        ends = [Release(120.0, name, 255 if name == "a" else 1 << 3, 0.0, 1)]
        answer = HORIZON.place(asked_by("0.4"), Cluster(nodes, ahead=Ahead(HOUR_S, (), ends)))
        assert isinstance(answer, Wait) == waits


def test_where_jobs_are_private_no_reason_tells_of_another_one():
    ends = [Release(60.0, "n", mask_of([1, 5]))]
    ahead = Ahead(HOUR_S, [WaitingJob((6,), HOUR_S)], ends, is_private=True)
    answer = HORIZON.place(Request((2,)), cluster([0, 2, 3, 4, 6, 7], ahead))
    assert answer.gpus == {"n": (0, 4)}
    assert "next job of" not in answer.reason
    nobody = HORIZON.place(Request((2,)), cluster([0, 2, 3, 4, 6, 7], replace(ahead, queue=())))
    ends_with = "of an empty node, chosen with the next jobs in mind"
    assert answer.reason.endswith(ends_with)
    assert nobody.reason.endswith(ends_with), "whether anybody waits or not"
    release = [Release(200.0, "n", 1 << 3, 0.0, 1)]
    waits = HORIZON.place(
        asked_by("0.4"), cluster(FREE, Ahead(HOUR_S, (), release, is_private=True))
    )
    assert isinstance(waits, Wait)
    assert waits.reason.startswith("better GPUs are expected: 100 % of the best GPUs' bandwidth")


def test_a_node_of_half_the_bandwidth_is_no_better_for_others_sake():
    """What it still has is not the ideal: by that a job would be sent there to keep the other."""
    slow = impaired(machine("dgx1v"), [Impairment((gpu,), 0.5) for gpu in range(8)])
    nodes = {
        "a": NodeState("a", slow, 255),
        "b": NodeState("b", machine("dgx1v"), mask_of([0, 1, 2, 3])),
    }
    where = Cluster(nodes, ahead=Ahead(HOUR_S, [WaitingJob((4,), HOUR_S)]))
    for least in (0.0, 0.9):
        answer = HORIZON.place(Request((2,), min_utility=least), where)
        assert isinstance(answer, Placement)
        assert answer.gpus == {"b": (0, 3)}


@pytest.mark.parametrize("parts", [[((), 0.8)], [((6, 7), 0.5)], [((0, 5), 0.5)]], ids=str)
def test_a_job_on_a_marked_node_waits_for_its_healthy_twin(parts):
    """The best pair of either: what is broken makes it no other kind of node."""
    marked = impaired(machine("dgx1v"), [Impairment(gpus, share) for gpus, share in parts])
    nodes = {
        "marked": NodeState("marked", marked, mask_of([0, 5])),
        "twin": NodeState("twin", machine("dgx1v"), 0),
    }
    ends = [Release(60.0, "twin", 255, 0.0, 1)]
    answer = HORIZON.place(asked_by("0.4"), Cluster(nodes, ahead=Ahead(HOUR_S, (), ends)))
    assert isinstance(answer, Wait), answer
    capped = replace(nodes["twin"], topology=impaired(machine("dgx1v"), [Impairment((), 0.5)]))
    nodes |= {"twin": capped, "marked": replace(nodes["marked"], topology=machine("dgx1v"))}
    answer = HORIZON.place(asked_by("0.4"), Cluster(nodes, ahead=Ahead(HOUR_S, (), ends)))
    assert isinstance(answer, Placement), "the twin delivers half"


#: GPU 3, which is linked to 0 by two NVLinks, in two minutes; the others of a DGX-1V in an hour.
ENDS = [Release(120.0, "n", 1 << 3, 0.0, 1), Release(3700.0, "n", mask_of([1, 2, 4, 6, 7]), 0.0, 2)]


@pytest.mark.parametrize(
    ("lasts_s", "before", "waits"),
    [(HOUR_S, 0, True), (HOUR_S, 1, False), (3000.0, 1, True), (3450.0, 1, True)],
    ids=["nobody is before it", "no later", "there is time left", "a part of the wait is"],
)
def test_no_wait_outlasts_the_time_that_backfill_leaves_the_job(lasts_s, before, waits):
    """The first in line starts on this node when all others end: the job must be over by then."""
    ahead = Ahead(lasts_s, [WaitingJob((8,), 24 * HOUR_S)], ENDS, before=before)
    answer = HORIZON.place(asked_by("0.4"), cluster(FREE, ahead))
    assert isinstance(answer, Wait) == waits
    if waits and before:
        assert answer.at_most_s <= 3700 - 60 - lasts_s


@pytest.mark.parametrize(("before", "waits"), [(0, True), (1, False)])
def test_gpus_that_one_before_the_job_takes_are_none_to_wait_for(before, waits):
    """With GPU 3 there is room for three: who wants them and comes first has them."""
    ahead = Ahead(HOUR_S, [WaitingJob((3,), HOUR_S)], ENDS[:1], before=before)
    answer = HORIZON.place(asked_by("0.4"), cluster(FREE, ahead))
    assert isinstance(answer, Wait) == waits


REST = mask_of([1, 2, 4, 6, 7])


@pytest.mark.parametrize(
    ("waiting", "others"),
    [
        ([WaitingJob((8,), HOUR_S)] * 2, [Release(100.0, "a", 255, 0.0, 7)]),
        ([WaitingJob((8, 8), HOUR_S)], [Release(100.0, "a", 255, 0.0, 7)]),
        (
            [WaitingJob((8,), HOUR_S)],
            [Release(50.0 + at, f"m{at}", 1, 0.0, at) for at in range(31)],
        ),
    ],
    ids=["the second one comes here", "the first one takes both", "the end here is not seen"],
)
def test_whoever_is_before_it_keeps_the_turn_on_this_node(waiting, others):
    """By the limits this node is whole in 5,000 s, and the job has one of 4,900."""
    here = [Release(400.0, "n", 1 << 3, 0.0, 3), Release(5000.0, "n", REST, 0.0, 2)]
    ends = sorted([*others, *here])[:32]
    names = {one.node for one in ends} - {"n"}
    nodes = {"n": NodeState("n", machine("dgx1v"), mask_of(FREE))}
    nodes |= {name: NodeState(name, machine("dgx1v"), 0) for name in names}
    ahead = Ahead(4900.0, waiting, ends, used=(0.5,) * 8, took_s=(1000.0,) * 6)
    for before, waits in ((0, True), (len(waiting), False)):
        where = Cluster(nodes, ahead=replace(ahead, before=before))
        assert isinstance(HORIZON.place(asked_by("0.3"), where), Wait) == waits


def test_a_job_waits_for_no_gpus_elsewhere_that_its_limit_keeps_it_from():
    """On b it would be over by what is guessed of it; Slurm plans by its limit."""
    nodes = {name: NodeState(name, machine("dgx1v"), 0) for name in "ab"}
    nodes["a"] = replace(nodes["a"], free=mask_of(FREE))
    ends = [Release(100.0, "b", mask_of([0, 3]), 0.0, 1), Release(18_000.0, "b", 0xF6, 0.0, 2)]
    ahead = Ahead(36_000.0, [WaitingJob((8,), HOUR_S)], ends, used=(0.1,) * 8, took_s=(900.0,) * 6)
    for before, waits in ((0, True), (1, False)):
        answer = HORIZON.place(asked_by("0.4"), Cluster(nodes, ahead=replace(ahead, before=before)))
        assert isinstance(answer, Wait) == waits


def test_what_comes_after_the_wait_is_over_is_not_waited_for():
    """A job that may wait for 248 s in all has waited for some of them."""
    for waited_s, waits in ((0.0, True), (100.0, True), (200.0, False)):
        release = [Release(100.0, "n", 1 << 3, 0.0, 1)]
        ahead = Ahead(HOUR_S, (), release, waited_s=waited_s)
        answer = HORIZON.place(asked_by("0.08"), cluster(FREE, ahead))
        assert isinstance(answer, Wait) == waits
        if waits:
            assert answer.at_most_s == pytest.approx(
                0.3 * 0.08 * (1 / 0.258 - 1) * HOUR_S, rel=0.01
            )
