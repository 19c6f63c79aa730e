"""What no job may lose by a choice of nodes or sets: a start, what it asks for, a whole node."""

from __future__ import annotations

from dataclasses import replace

import pytest
from machines import machine
from test_policies import EIGHT, placed, snapshot

from gres_topology.impaired import impaired
from gres_topology.slurm_files.topology_conf import parse
from gres_topology.topology import Impairment
from policies import Ahead, Cluster, NodeState, Placement, Request, Wait, WaitingJob
from policies.contract.bits import mask_of
from policies.registry import registry

HOUR_S = 3600.0
EVERY = pytest.mark.parametrize("policy", ["mapa", "horizon"])


@pytest.mark.parametrize("first", [7, 8])
def test_no_set_for_others_sake_keeps_the_first_that_waits_from_starting(first):
    """On b the next job of 4 would fare better; the first one needs b whole, or nearly so."""
    where = snapshot(("a", "mi250x", [1, 2, 4, 5, 6, 7]), ("b", "mi250x", EIGHT))
    queue = [WaitingJob((first,), 600.0), WaitingJob((4,), HOUR_S)]
    answer = placed("horizon", Request((2,)), replace(where, ahead=Ahead(HOUR_S, queue)))
    assert {*answer.gpus} == {"a"}


@pytest.mark.parametrize("share", ["0.01", "0.02", "0.024", "0.03", "0.3"])
def test_a_job_that_communicates_little_gets_and_waits_by_one_figure(share):
    """On b it would have 8 % of the ideal, and on a all of it."""
    bridged = "a100-pcie-bridged"
    where = snapshot(("a", bridged, EIGHT), ("b", bridged, [0, 1]))
    where = replace(where, ahead=Ahead(20 * HOUR_S))
    asked = Request((2,), options={"communication": share})
    answer = registry.get("horizon").place(asked, where)
    assert isinstance(answer, Placement)
    feels = float(share) * (1 / 0.08 - 1) > 0.06
    assert not feels or {*answer.gpus} == {"a"}


@EVERY
@pytest.mark.parametrize("kind", ["dgx1v", "mi250x", "minsky", "a100-pcie-bridged", "l40s-pcie"])
def test_on_an_empty_cluster_no_job_waits_for_a_utility(policy, kind):
    """Nor one that says it does not feel its links, whose sets are ranked by what is left."""
    node = machine(kind)
    where = Cluster({"n": NodeState("n", node, (1 << node.gpus) - 1)})
    for count in range(1, node.gpus + 1):
        for sensitive in (True, False):
            asked = Request((count,), sensitive=sensitive, min_utility=1.0)
            answer = registry.get(policy).place(asked, where)
            assert isinstance(answer, Placement), (count, sensitive)
            assert answer.utility == 1.0


@EVERY
def test_what_a_job_asks_for_comes_before_weight_and_power_caps(policy):
    """The lighter node, or the one without a cap, has 26 % of the ideal."""
    asked = Request((2,), min_utility=0.9)
    heavy = snapshot(("a", "dgx1v", EIGHT, 5), ("b", "dgx1v", [0, 5]))
    assert {*placed(policy, asked, heavy).gpus} == {"a"}
    assert {*placed(policy, Request((2,)), heavy).gpus} == {"b"}
    capped = NodeState("a", impaired(machine("dgx1v"), [Impairment((), 0.9)]), 255)
    free = NodeState("b", machine("dgx1v"), mask_of([0, 5]))
    for request in (asked, Request((2,))):
        assert {*placed(policy, request, Cluster({"a": capped, "b": free})).gpus} == {"a"}
    nowhere = snapshot(("a", "dgx1v", [0, 5], 5), ("b", "dgx1v", [0, 5]))
    answer = registry.get(policy).place(asked, nowhere)
    assert isinstance(answer, Wait)
    assert answer.instead is not None
    assert {*answer.instead.gpus} == {"b"}


def test_no_set_for_others_sake_is_on_a_node_with_a_power_cap():
    """Links are alike; there it would run slower by a tenth."""
    capped = impaired(machine("dgx1v"), [Impairment((), 0.9)])
    for others in ((), (WaitingJob((4,), HOUR_S),), (WaitingJob((6,), HOUR_S),) * 3):
        for free in ([0, 2, 3, 4, 6, 7], [0, 1, 2, 3], EIGHT):
            nodes = {
                "a": NodeState("a", capped, 255),
                "b": NodeState("b", machine("dgx1v"), mask_of(free)),
            }
            answer = registry.get("horizon").place(
                Request((2,)), Cluster(nodes, ahead=Ahead(HOUR_S, others))
            )
            assert isinstance(answer, Placement)
            assert {*answer.gpus} == {"b"}


@EVERY
@pytest.mark.parametrize("sensitive", [True, False])
def test_of_kinds_that_are_as_good_the_one_whose_nodes_are_in_use(policy, sensitive):
    """The worst of two nodes is as whole in both kinds; the other one is not."""
    where = snapshot(
        ("a", "hgx-a100-4", [0, 1, 2, 3]),
        ("b", "hgx-a100-4", [0, 1, 2, 3]),
        ("c", "minsky", [0, 1, 2, 3]),
        ("d", "minsky", [0, 1, 2]),
    )
    assert {*placed(policy, Request((2, 2), sensitive=sensitive), where).gpus} == {"c", "d"}


@EVERY
def test_of_leaves_the_one_with_a_kind_of_its_own(policy):
    """By what is left, the leaf of two kinds would be the better one."""
    network = parse(
        "SwitchName=s1 Nodes=a,b\nSwitchName=s2 Nodes=c,d\nSwitchName=top Switches=s1,s2",
        "topology.conf",
    )
    where = snapshot(
        ("a", "dgx1v", [0, 3]),
        ("b", "minsky", [0, 1]),
        ("c", "dgx1v", [0, 1, 2, 3]),
        ("d", "dgx1v", [0, 1, 2, 3]),
    )
    answer = placed(policy, Request((2, 2)), replace(where, network=network))
    assert {*answer.gpus} == {"c", "d"}


def test_a_reason_is_of_who_chose_and_names_what_is_left():
    """Not GPUs that the job holds itself, until the next one gets them."""
    where = snapshot(("a", "dgx1v", EIGHT))
    for first in (2, 4, 6, 7, 8):
        for count in (1, 2, 3):
            queue = [WaitingJob((first,), HOUR_S), WaitingJob((2,), HOUR_S)]
            asked = replace(where, ahead=Ahead(60.0, queue))
            answer = placed("horizon", Request((count,)), asked)
            own = placed("mapa", Request((count,)), where)
            is_own = answer.gpus == own.gpus
            assert ("chosen with the next jobs in mind" in answer.reason) == (not is_own)
            if "leaves " in answer.reason:
                left = answer.reason.split("leaves ")[1].split(" for the next")[0]
                assert not {*map(int, left.split(","))} & {*answer.gpus["a"]}


def test_who_asks_for_the_emptiest_node_gets_it_whoever_waits():
    where = snapshot(("a", "dgx1v", [0, 1, 2, 3, 4, 6, 7]), ("b", "dgx1v", [0, 1, 2, 5, 6, 7]))
    asked = replace(where, ahead=Ahead(HOUR_S, [WaitingJob((4,), HOUR_S)] * 4))
    request = Request((2,), options={"spread": "yes"})
    assert {*placed("horizon", request, asked).gpus} == {"a"}


@pytest.mark.parametrize("count", [3, 4, 8])
def test_the_best_set_of_a_large_node_is_found_whatever_else_was_looked_at(count):
    """A search from each GPU finds the same set in worse orders, too."""
    where = snapshot(("a", "torus-16", list(range(16))))
    request = Request((count,), pattern="hypercube", min_utility=1.0)
    assert placed("mapa", request, where).utility == 1.0
