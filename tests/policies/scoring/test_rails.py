"""What crosses the spine of a rail-optimised network, and GPUs chosen so that it is little."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from random import Random

import networkx as nx
import pytest
from machines import machine

from gres_topology import Nic
from gres_topology.slurm_files.topology_conf import parse
from policies import Cluster, NodeState, Placement, Request
from policies.contract.bits import mask_of
from policies.registry import registry
from policies.scoring import rails as module
from policies.scoring.objectives import BALANCED
from policies.scoring.rails import EqualSets, choose, spine_bytes, suiting
from policies.scoring.tables import tables

H100 = machine("dgx-h100")
FAMILY = ("mapa", "mapa-widest", "mapa-preserve", "mapa-preserve-site", "mapa-greedy")
#: All have NICs.
WITH_NICS = ("dgx-h100", "dgx-a100", "mi300x", "rtx-pro-6000", "dgx1v")

COUNTED = [
    ("nothing on one node", [(0, 1)], 0, 0),
    ("nothing where ranks are on the same rails", [(0, 1), (0, 1)], 0, 0),
    ("all where no rail is shared: 2 steps x 2 x 3/4, and 2 edges", [(0, 1), (2, 3)], 3, 2),
    ("all where the rails are the same but their order is not", [(0, 1), (1, 0)], 3, 2),
    ("half where one of two ranks is on another rail", [(0, 1), (0, 2)], 1.5, 1),
    ("a node of one GPU serves both channels", [(0, 1), (0,)], 2 * (4 / 3) / 2, 1),
    ("one of three nodes apart: two of three steps", [(0,), (0,), (1,)], 2 * (4 / 3), 3),
]


@pytest.mark.parametrize(
    ("nodes", "ring", "tree"), [pytest.param(*row[1:], id=row[0]) for row in COUNTED]
)
def test_bytes_over_the_spine_per_byte_reduced(nodes, ring, tree):
    found = spine_bytes(nodes)
    assert found.ring == pytest.approx(ring)
    assert found.tree == pytest.approx(tree)


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 8, 13, 16])
def test_two_trees_reach_every_node_and_no_more_is_sent_than_between_nodes(nodes):
    edges = list(module._edges(nodes))
    for tree in (edges[::2], edges[1::2]):
        assert nx.is_tree(nx.Graph(tree))
        assert len(nx.Graph(tree)) == nodes
    apart = spine_bytes([(4 * at, 4 * at + 1) for at in range(nodes)])
    assert apart.ring == pytest.approx(apart.ring_total)
    assert apart.tree == apart.tree_total == 2 * (nodes - 1)
    assert apart.ring_total == pytest.approx(2 * (2 * nodes - 1) / 2)


def test_switches_that_reduce_send_one_sum_of_each_leaf():
    """SHARP: each node sends and gets a byte per byte; leaves do that over the spine."""
    same = spine_bytes([(0, 1)] * 5, sharp={0, 1})
    assert (same.sharp, same.sharp_total) == (0, 10)
    apart = spine_bytes([(0, 1), (0, 1), (0, 2)], sharp={0, 1, 2})
    assert apart.sharp == 2  # half of the buffer, from two leaves, up and down
    assert spine_bytes([(0, 1), (0, 2)], sharp={0, 1}).sharp is None
    assert spine_bytes([(0, 1), (0, 2)]).sharp is None


def offer(*rails, best=None):
    """Sets named by their number."""
    return EqualSets(tuple(range(len(rails))), rails, rails[:best])


def test_the_first_set_that_all_nodes_have_is_taken():
    offers = [offer((0, 1), (2, 3), (4, 5)), offer((6, 7), (4, 5), (2, 3)), offer((2, 3), (4, 5))]
    assert choose(offers) == [1, 2, 0]


def test_numa_nodes_are_split_only_where_no_other_set_will_do():
    whole = [offer((2, 3), (0, 1), best=2), offer((0, 1), (2, 3), best=1)]
    assert choose(whole) == [1, 0]
    split = [offer((2, 3), (0, 1), best=1), offer((0, 1), (4, 5), best=2)]
    assert choose(split) == [1, 0]


def test_little_more_crosses_than_with_the_best_of_all_choices():
    """Nothing where nothing need; over many draws near the least there is, and far from the first
    sets."""
    draw = Random(1)
    took = least = first = 0.0
    for _ in range(200):
        sets = list(combinations(range(6), 2))
        offers = [offer(*draw.sample(sets, draw.randint(1, 4))) for _ in range(draw.randint(2, 4))]
        taken = [one.rails[at] for one, at in zip(offers, choose(offers), strict=True)]
        best = min(spine_bytes(some).ring for some in product(*(one.rails for one in offers)))
        if best == 0:
            assert spine_bytes(taken).ring == 0
        took, least = took + spine_bytes(taken).ring, least + best
        first += spine_bytes([one.rails[0] for one in offers]).ring
    assert took <= 1.1 * least
    assert took <= 0.8 * first


def placed(frees, counts, policy="mapa", topology=H100, network=None):
    states = {name: NodeState(name, topology, mask_of(free)) for name, free in frees.items()}
    return registry.get(policy).place(Request(counts), Cluster(states, network=network))


def crossing(found, topology=H100):
    return spine_bytes([tuple(topology.rails[gpu] for gpu in some) for some in found.gpus.values()])


LOW, HIGH, ALL = [0, 1, 2, 3], [4, 5, 6, 7], list(range(8))
CHOICES = [
    ("a node that could give its lower half gives the half that the other has", (4, 4),
     {"a": ALL, "b": HIGH}, {"a": HIGH, "b": HIGH}),
    ("NUMA nodes are split where ranks share no rail without it", (2, 2),
     {"a": [0, 1, 2, 3, 4, 5], "b": [2, 3, 4, 5, 6, 7]}, {"a": [4, 5], "b": [4, 5]}),
    ("of nodes of equal rank those that have the same rails free", (4, 4),
     {"a": LOW, "b": HIGH, "c": LOW}, {"a": LOW, "c": LOW}),
    ("the fewest such nodes that suffice, so that more jobs find some", (4, 4),
     {"a": LOW, "b": HIGH, "c": LOW, "d": HIGH, "e": LOW}, {"b": HIGH, "d": HIGH}),
    ("a fuller node still comes before one on the same rails", (4, 4),
     {"a": LOW, "b": HIGH, "c": ALL}, {"a": LOW, "b": HIGH}),
    ("single GPUs are on one rail, too", (1, 1),
     {"a": [1, 2, 5], "b": [3, 5, 6]}, {"a": [5], "b": [5]}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "frees", "expected"), [pytest.param(*row[1:], id=row[0]) for row in CHOICES]
)
def test_jobs_of_several_nodes_get_the_same_rails(counts, frees, expected):
    found = placed(frees, counts)
    assert {name: sorted(some) for name, some in found.gpus.items()} == expected


def test_one_leaf_comes_before_the_same_rails():
    network = parse(
        "SwitchName=s1 Nodes=a,b\nSwitchName=s2 Nodes=c,d,e\nSwitchName=t Switches=s[1-2]", ""
    )
    frees = {"a": LOW, "b": HIGH, "c": LOW}
    assert set(placed(frees, (4, 4), network=network).gpus) == {"a", "b"}
    more = frees | {"d": HIGH, "e": LOW}
    found = placed({**more, "b": []}, (4, 4), network=network)
    assert found.gpus == {"c": tuple(LOW), "e": tuple(LOW)}


def test_of_many_equal_sets_some_are_looked_at():
    """Sixteen GPUs have 12,870 sets of eight; those are rails of a DGX-2 by its NICs."""
    paths = [["PIX" if gpu // 2 == nic else "NODE" for gpu in range(16)] for nic in range(8)]
    nics = tuple(Nic(f"mlx5_{at}", tuple(some)) for at, some in enumerate(paths))
    topology = replace(machine("dgx2"), nics=nics)
    assert topology.rails == tuple(gpu // 2 for gpu in range(16))
    upper = list(range(8, 16))
    found = placed({"a": list(range(16)), "b": upper}, (8, 8), topology=topology)
    assert {tuple(sorted(some)) for some in found.gpus.values()} == {tuple(upper)}
    offer = tables.offers(topology, "ring", 8, BALANCED).of(0xFFFF)
    assert len(offer.masks) == 128
    assert len(offer.whole) == 2


def test_machines_whose_rails_alone_differ_are_told_apart():
    swapped = tuple(replace(nic, rail=7 - nic.rail) for nic in H100.nics)
    other = replace(H100, nics=swapped)
    states = {
        "a": NodeState("a", H100, mask_of(ALL)),
        "b": NodeState("b", other, mask_of(ALL)),
    }
    found = registry.get("mapa").place(Request((1, 1)), Cluster(states))
    (one,), (two,) = found.gpus["a"], found.gpus["b"]
    assert H100.rails[one] == other.rails[two]


def with_sharp(*rails):
    """An H100 of which the switches of these rails reduce."""
    return replace(H100, nics=tuple(replace(nic, sharp=nic.rail in rails) for nic in H100.nics))


def test_of_equal_rails_those_whose_switches_reduce():
    """SHARP decides among sets on the same rails, and not before rails and NUMA nodes do."""
    sharp = with_sharp(*HIGH)
    empty = {"a": ALL, "b": ALL}
    assert (
        crossing(placed(empty, (4, 4))).ring == crossing(placed(empty, (4, 4), topology=sharp)).ring
    )
    both = placed(empty, (4, 4), topology=sharp)
    assert {tuple(sorted(some)) for some in both.gpus.values()} == {tuple(HIGH)}
    low = placed({"a": LOW, "b": ALL}, (4, 4), topology=sharp)
    assert {tuple(sorted(some)) for some in low.gpus.values()} == {tuple(LOW)}
    split = placed({"a": [0, 1, 4], "b": [0, 1, 4, 5]}, (2, 2), topology=with_sharp(0, 4))
    assert {tuple(sorted(some)) for some in split.gpus.values()} == {(0, 1)}


def test_of_equal_nodes_those_whose_leaves_reduce():
    """Where they suffice: two of four nodes are on such leaves, and a job of three takes others."""
    machines = {"a": H100, "b": with_sharp(*ALL), "c": H100, "d": with_sharp(*ALL)}
    states = {name: NodeState(name, one, mask_of(ALL)) for name, one in machines.items()}
    mapa = registry.get("mapa")
    assert set(mapa.place(Request((4, 4)), Cluster(states)).gpus) == {"b", "d"}
    assert set(mapa.place(Request((8, 8)), Cluster(states)).gpus) == {"b", "d"}
    assert len(mapa.place(Request((4, 4, 4)), Cluster(states)).gpus) == 3


def test_the_rails_of_nodes_that_are_taken_come_before_leaves_that_reduce():
    """The fullest node comes first and has the lower half; `b` reduces and has the upper one."""
    low, high = (
        EqualSets((1,), ((0,),), ((0,),)),
        EqualSets((2,), ((1,),), ((1,),), frozenset({(1,)})),
    )
    assert suiting([(0b01, low), (0b10, high)], 1, []) == 0b10
    assert suiting([(0b01, low), (0b10, high)], 1, [low]) == 0b01


Found = dict[bool, Placement]


def with_and_without_rails(
    name: str, policy: str
) -> Iterator[tuple[Found, dict[str, list[int]], int]]:
    """25 placements of three nodes each: by whether there are rails, what was free, GPUs a node."""
    topology = machine(name)
    bare = replace(topology, nics=())
    draw = Random(name)
    for _ in range(25):
        count = draw.randint(1, 4)
        frees = {f"n{at}": draw.sample(ALL, draw.randint(count, 8)) for at in range(6)}
        yield (
            {
                has_rails: placed(frees, (count,) * 3, policy, topology if has_rails else bare)
                for has_rails in (True, False)
            },
            frees,
            count,
        )


@pytest.mark.parametrize("policy", FAMILY)
@pytest.mark.parametrize("name", WITH_NICS)
def test_what_the_policy_goes_by_is_the_same_without_rails(name, policy):
    """Bandwidth within the nodes stays first: rails decide among equals alone, and cross less."""
    crossed = {True: 0.0, False: 0.0}
    for found, _, _ in with_and_without_rails(name, policy):
        figures = [
            (one.effbw_gbps, one.utility, pytest.approx(one.score)) for one in found.values()
        ]
        assert figures[0] == figures[1]
        for has_rails, one in found.items():
            ordered = replace(one, gpus=dict(sorted(one.gpus.items())))
            crossed[has_rails] += crossing(ordered, machine(name)).ring
    assert crossed[True] < crossed[False]


@pytest.mark.parametrize("name", WITH_NICS)
def test_topo_aware_takes_the_same_rails_where_its_utility_stays(name):
    """On the nodes that it has chosen; of each of these its utility is what it was, or more."""
    crossed = {True: 0.0, False: 0.0}
    for found, frees, count in with_and_without_rails(name, "topo-aware"):
        assert found[True].gpus.keys() == found[False].gpus.keys()
        assert found[True].utility >= found[False].utility
        for has_rails, one in found.items():
            for node, gpus in one.gpus.items():
                assert len(set(gpus)) == count
                assert set(gpus) <= set(frees[node])
            crossed[has_rails] += crossing(one, machine(name)).ring
    assert crossed[True] < crossed[False]


TOPO_AWARE = [
    ("GPUs of one socket take each other's place", (1, 1),
     {"a": [2], "b": [1, 2, 3]}, {"a": [2], "b": [2]}),
    ("as do whole sockets", (4, 4), {"a": HIGH, "b": ALL}, {"a": HIGH, "b": HIGH}),
    ("the rails that most nodes have", (2, 2, 2),
     {"a": [1, 2, 3], "b": [2, 3], "c": [0, 1]}, {"a": [2, 3], "b": [2, 3], "c": [0, 1]}),
    ("not GPUs of two sockets for two of one", (2, 2),
     {"a": [0, 4], "b": [0, 4, 5]}, {"a": [0, 4], "b": [4, 5]}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "frees", "expected"), [pytest.param(*row[1:], id=row[0]) for row in TOPO_AWARE]
)
def test_rails_of_topo_aware(counts, frees, expected):
    found = placed(frees, counts, "topo-aware")
    assert {name: sorted(some) for name, some in found.gpus.items()} == expected
