"""What each policy takes, on named machines, in sentences."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import drawn, machine

import gres_topology
from policies import Cluster, NodeState, Placement, Policy, Request, Wait
from policies.contract.bits import mask_of
from policies.errors import PolicyError
from policies.patterns.pattern import PATTERNS
from policies.registry import registry

ALL = registry.names()


def snapshot(*nodes: tuple[str, str, list[int]] | tuple[str, str, list[int], int]) -> Cluster:
    """A cluster of (name, machine, free GPUs[, weight])."""
    states = [
        NodeState(name, machine(kind), mask_of(free), weight=rest[0] if rest else 1)
        for name, kind, free, *rest in nodes
    ]
    return Cluster({state.name: state for state in states})


def placed(policy: str, request: Request, cluster: Cluster) -> Placement:
    answer = registry.get(policy).place(request, cluster)
    assert isinstance(answer, Placement)
    return answer


CHOICES = [
    ("two on an empty dgx1v get a double NVLink", "mapa", "dgx1v", range(8), 2, {0, 3}),
    ("three on an empty dgx1v get two double links", "mapa", "dgx1v", range(8), 3, {0, 2, 3}),
    ("four get a quad", "mapa", "dgx1v", range(8), 4, {0, 1, 2, 3}),
    ("two of 0,1,4 take the double link", "mapa", "dgx1v", [0, 1, 4], 2, {0, 4}),
    ("one GPU leaves the only pair of a minsky alone", "mapa", "minsky", [0, 1, 2], 1, {2}),
    ("one GPU leaves the other pair of a minsky alone", "mapa", "minsky", [1, 2, 3], 1, {1}),
    ("one GPU breaks a single link, not a double", "mapa", "dgx1v", [0, 3, 1], 1, {1}),
    ("one GPU takes the one nobody is linked to", "mapa", "dgx1v", [0, 3, 6], 1, {6}),
    ("one GPU takes the widow of a bridged pair", "mapa", "a100-pcie-bridged", [0, 2, 5], 1, {5}),
    ("two take a bridged pair", "mapa", "a100-pcie-bridged", [0, 1, 2, 3], 2, {0, 2}),
    ("two take a module of a mi250x", "mapa", "mi250x", [0, 2, 3], 2, {2, 3}),
    ("any two of an NVSwitch machine are the lowest", "mapa", "dgx-a100", [3, 5, 7], 2, {3, 5}),
    (
        "two of an NVSwitch machine keep a whole half",
        "mapa",
        "dgx-h100",
        [0, 1, 2, 3, 5, 6],
        2,
        {5, 6},
    ),
    (
        "four of one half leave the rest together",
        "mapa",
        "dgx-h100",
        [0, 1, 4, 5, 6, 7],
        4,
        {4, 5, 6, 7},
    ),
    ("one takes the widow of a half", "mapa", "dgx-h100", [0, 1, 2, 3, 7], 1, {7}),
    ("greedy takes the largest sum", "mapa-greedy", "dgx1v", range(8), 3, {0, 2, 3}),
    ("preserve takes the best by eq. 2", "mapa-preserve", "dgx1v", range(8), 5, {0, 1, 2, 3, 4}),
    ("first-fit takes the lowest ids", "first-fit", "dgx1v", [1, 4, 6], 2, {1, 4}),
    ("best-fit takes the fuller socket", "best-fit", "dgx1v", [0, 1, 2, 3, 6, 7], 2, {6, 7}),
    ("best-fit spans sockets only if it must", "best-fit", "dgx1v", [0, 1, 5, 6], 3, {0, 1, 5}),
    ("best-fit takes the first of equal sockets", "best-fit", "dgx1v", [0, 1, 5, 6], 2, {0, 1}),
    ("best-fit spans from the emptier one", "best-fit", "dgx1v", [0, 1, 5, 6, 7], 4, {0, 5, 6, 7}),
]


@pytest.mark.parametrize(
    ("policy", "kind", "free", "count", "expected"),
    [pytest.param(*row[1:], id=row[0]) for row in CHOICES],
)
def test_choice(policy, kind, free, count, expected):
    placement = placed(policy, Request((count,)), snapshot(("n1", kind, list(free))))
    assert set(placement.gpus["n1"]) == expected
    assert placement.policy == policy


@pytest.mark.parametrize(
    ("free", "count", "expected"),
    [
        pytest.param([0, 1, 2], 1, {2}, id="the GPU without a wide link goes first"),
        pytest.param([0, 1, 2], 2, {0, 1}, id="the pair stays whole"),
        pytest.param([0, 2], 2, {0, 2}, id="both where there is nothing else"),
    ],
)
def test_best_fit_packs_islands_where_no_numa_nodes_are_known(free, count, expected):
    """A pair with a link of its own, and GPU 2 alone."""
    topology = gres_topology.read("gpus: 3\nlinks: {NV1: 0-1}\nother_links: PHB\n", name="three")
    cluster = Cluster({"n1": NodeState("n1", topology, mask_of(free))})
    assert set(placed("best-fit", Request((count,)), cluster).gpus["n1"]) == expected


def test_widest_crosses_no_host_with_five_gpus_where_it_need_not():
    placement = placed("mapa-widest", Request((5,)), snapshot(("n1", "dgx1v", list(range(8)))))
    order = placement.gpus["n1"]
    kinds = machine("dgx1v").kinds
    assert all(
        kinds[a][b].startswith("NV") for a, b in zip(order, (*order[1:], order[0]), strict=True)
    )


def test_an_insensitive_job_leaves_the_wide_links_to_others():
    """Of 0, 1, 3, 4 a sensitive pair takes 0-4 (double); 0-3 is left by one that is not."""
    cluster = snapshot(("n1", "dgx1v", [0, 1, 3, 4]))
    sensitive = placed("mapa-preserve", Request((2,)), cluster)
    insensitive = placed("mapa-preserve", Request((2,), sensitive=False), cluster)
    assert sensitive.effbw_gbps > insensitive.effbw_gbps
    assert insensitive.preserved_gbps > sensitive.preserved_gbps
    assert insensitive.score == insensitive.preserved_gbps


@pytest.mark.parametrize("sensitive", [True, False])
def test_a_job_of_one_gpu_has_no_links_of_its_own_to_be_sensitive_about(sensitive):
    cluster = snapshot(("n1", "dgx1v", [0, 1, 2, 4, 5]))
    assert placed("mapa", Request((1,), sensitive=sensitive), cluster).gpus == {"n1": (4,)}


EIGHT = list(range(8))
NODES = [
    ("a lighter node comes before a better set", (2,),
     [("a", "dgx1v", [0, 3], 2), ("b", "dgx1v", [0, 5], 1)], {"b": {0, 5}}),
    ("a heavier node is used when the lighter has no room", (2,),
     [("a", "dgx1v", [0, 3], 2), ("b", "dgx1v", [0], 1)], {"a": {0, 3}}),
    ("among equals the fuller node is taken and the empty one stays whole", (2,),
     [("a", "dgx1v", EIGHT), ("b", "dgx1v", [4, 7])], {"b": {4, 7}}),
    ("a better set comes before packing", (2,),
     [("a", "dgx1v", EIGHT), ("b", "dgx1v", [0, 5])], {"a": {0, 3}}),
    ("but not one that is better by less than a job can feel", (5,),
     [("a", "dgx1v", EIGHT), ("b", "dgx1v", [0, 2, 3, 4, 6])], {"b": {0, 2, 3, 4, 6}}),
    ("the best of a slower kind fills up before a faster kind is begun", (2,),
     [("a", "dgx-h100", EIGHT), ("b", "l40s-8", [0, 1])], {"b": {0, 1}}),
    ("a poor set of a faster kind comes after the best of a slower one", (2,),
     [("a", "dgx1v", [0, 5]), ("b", "l40s-8", EIGHT)], {"b": {0, 1}}),
    ("one GPU breaks up no node that is whole, of whatever kind", (1,),
     [("a", "l40s-8", EIGHT), ("b", "dgx-h100", [0, 1, 2])], {"b": {0}}),
    ("equal nodes are taken by name", (4,),
     [("b", "dgx1v", EIGHT), ("a", "dgx1v", EIGHT)], {"a": {0, 1, 2, 3}}),
    ("two nodes are two nodes", (4, 4),
     [("a", "dgx1v", EIGHT), ("b", "dgx1v", EIGHT)], {"a": {0, 1, 2, 3}, "b": {0, 1, 2, 3}}),
    ("several nodes are of one kind, though others would be fuller", (4, 4),
     [("a", "mi250x", EIGHT), ("b", "dgx1v", EIGHT), ("c", "dgx1v", EIGHT),
      ("d", "minsky", [0, 1, 2, 3])], {"b": {0, 1, 2, 3}, "c": {0, 1, 2, 3}}),
    ("of two kinds", (2, 2),
     [("a", "minsky", [0, 1]), ("b", "dgx1v", [0, 3]), ("c", "dgx1v", [4, 7])],
     {"b": {0, 3}, "c": {4, 7}}),
    ("but not where the job would feel it", (2, 2),
     [("a", "minsky", [0, 1]), ("b", "dgx1v", [0, 3]), ("c", "dgx1v", [0, 5])],
     {"a": {0, 1}, "b": {0, 3}}),
    ("nor on heavier ones", (2, 2),
     [("a", "minsky", [0, 1]), ("b", "dgx1v", [0, 3]), ("c", "dgx1v", [4, 7], 2)],
     {"a": {0, 1}, "b": {0, 3}}),
    ("the larger count goes where it fits", (1, 4),
     [("a", "dgx1v", [0]), ("b", "dgx1v", [4, 5, 6, 7])], {"a": {0}, "b": {4, 5, 6, 7}}),
    ("one GPU leaves a pair of another node alone", (1,),
     [("a", "minsky", [0, 1]), ("b", "minsky", [0, 2])], {"b": {0}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "nodes", "expected"), [pytest.param(*row[1:], id=row[0]) for row in NODES]
)
def test_node_choice(counts, nodes, expected):
    placement = placed("mapa", Request(counts), snapshot(*nodes))
    assert {name: set(gpus) for name, gpus in placement.gpus.items()} == expected


def test_a_job_that_feels_nothing_of_its_links_leaves_other_nodes_whole():
    cluster = snapshot(("a", "dgx1v", EIGHT), ("b", "dgx1v", [0, 5]))
    assert set(placed("mapa", Request((2,), sensitive=False), cluster).gpus) == {"b"}
    for share, node in (("0", "b"), ("0.01", "b"), ("0.1", "a")):
        request = Request((2,), options={"communication": share})
        assert set(placed("horizon", request, cluster).gpus) == {node}


@pytest.mark.parametrize("policy", ["mapa", "horizon"])
def test_no_job_waits_for_what_another_node_has_free(policy):
    """The fuller node has 0.97 of the ideal: less by nothing that a job could feel."""
    cluster = snapshot(("a", "dgx1v", EIGHT), ("b", "dgx1v", [0, 2, 3, 4, 6]))
    for least, node in ((0.9, "b"), (0.98, "a")):
        assert set(placed(policy, Request((5,), min_utility=least), cluster).gpus) == {node}


def test_spread_takes_the_emptiest_of_equally_good_nodes():
    cluster = snapshot(("a", "dgx1v", list(range(8))), ("b", "dgx1v", [4, 7]))
    request = Request((2,), options={"spread": "yes"})
    assert set(placed("mapa", request, cluster).gpus) == {"a"}


def test_a_job_waits_when_its_minimal_utility_is_out_of_reach():
    cluster = snapshot(("n1", "dgx1v", [0, 5]))
    answer = registry.get("mapa").place(Request((2,), min_utility=0.5), cluster)
    assert isinstance(answer, Wait)
    assert answer.at_most_s == inf, "the site's bounds alone hold"
    assert "0.26 of the bandwidth of the best" in answer.reason
    assert "\n" not in answer.reason
    assert answer.instead is not None
    assert set(answer.instead.gpus["n1"]) == {0, 5}


def test_the_ideal_is_that_of_the_best_candidate_machine():
    """A PCIe pair on a dgx1v is not ideal because the other candidate is no better."""
    cluster = snapshot(("n1", "dgx1v", [0, 5]), ("n2", "dgx1v", [0, 1], 9))
    placement = placed("mapa", Request((2,)), cluster)
    assert placement.utility == pytest.approx(10.09 / 39.08, abs=1e-3)


def test_one_gpu_never_waits_for_bandwidth():
    cluster = snapshot(("n1", "dgx1v", [5]))
    assert placed("mapa", Request((1,), min_utility=1.0), cluster).utility == 1.0


def test_a_decision_carries_its_alternatives_and_a_reason_of_one_line():
    cluster = snapshot(("a", "dgx1v", list(range(8))), ("b", "dgx1v", [0, 1, 2, 3, 4]))
    placement = placed("mapa", Request((3,)), cluster)
    assert 2 <= len(placement.candidates) <= 8
    assert placement.candidates[0].gpus == placement.gpus
    assert {name for found in placement.candidates for name in found.gpus} == {"a", "b"}
    assert len({tuple(sorted(found.gpus.items())) for found in placement.candidates}) == len(
        placement.candidates
    )
    assert 0 < len(placement.reason) <= 200
    assert placement.reason.isprintable()
    assert not set("]|\n") & set(placement.reason)


@pytest.mark.parametrize("policy", ALL)
def test_a_job_that_does_not_fit_is_the_callers_mistake_and_named(policy):
    with pytest.raises(PolicyError, match="4 free GPUs"):
        registry.get(policy).place(Request((4,)), snapshot(("n1", "dgx1v", [0, 1])))


@pytest.mark.parametrize("policy", ALL)
def test_every_policy_reports_what_its_set_is_worth(policy):
    placement = placed(policy, Request((2,)), snapshot(("n1", "dgx1v", [0, 5])))
    assert placement.effbw_gbps == pytest.approx(10.09, abs=0.01)
    assert placement.agg_gbps == 12.0


@given(
    st.sampled_from(ALL),
    st.sampled_from(sorted(PATTERNS)),
    st.booleans(),
    st.lists(st.integers(0, 255), min_size=1, max_size=4),
    st.integers(0, 20),
    st.data(),
)
@settings(max_examples=200)
def test_enough_or_none_and_no_gpu_twice(policy, pattern, sensitive, frees, seed, data):
    topology = drawn(8, seed)
    states = [NodeState(f"n{i}", topology, free, weight=i % 2) for i, free in enumerate(frees)]
    cluster = Cluster({state.name: state for state in states})
    counts = tuple(data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=3)))
    request = Request(tuple(sorted(counts, reverse=True)), pattern=pattern, sensitive=sensitive)
    room = sorted((free.bit_count() for free in frees), reverse=True)
    fits = len(counts) <= len(room) and all(
        c <= r for c, r in zip(request.gpus_per_node, room, strict=False)
    )
    chosen: Policy = registry.get(policy)
    if not fits:
        with pytest.raises(PolicyError):
            chosen.place(request, cluster)
        return
    answer = chosen.place(request, cluster)
    assert isinstance(answer, Placement)
    assert sorted(map(len, answer.gpus.values()), reverse=True) == list(request.gpus_per_node)
    for name, gpus in answer.gpus.items():
        assert len(set(gpus)) == len(gpus)
        assert mask_of(gpus) & ~cluster.nodes[name].free == 0
    assert 0.0 <= answer.utility <= 1.0
    assert chosen.place(request, cluster) == answer
