"""Patterns of a site's own are placed as exactly as ours; two contents are never mixed."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from machines import drawn, machine

from gres_topology import NodeTopology
from policies import Cluster, NodeState, Placement, Request
from policies.contract.bits import gpus_of, mask_of
from policies.mapa import Mapa, MapaGreedy
from policies.matching.links import link_mbps
from policies.matching.search import best_match
from policies.patterns.pattern import Edge, add_graph, fitting, pattern_of
from policies.scoring.objectives import AGGREGATE, EFFBW
from policies.scoring.tables import Tables


def drawn_graph(ranks: int, seed: int) -> list[Edge]:
    """A connected graph: a drawn tree, and each other edge with probability 1/3."""
    draw = np.random.default_rng(seed)
    tree = {(int(draw.integers(rank)), rank) for rank in range(1, ranks)}
    more = {pair for pair in combinations(range(ranks), 2) if draw.random() < 1 / 3}
    return sorted(tree | more)


def by_hand(topology: NodeTopology, edges: list[Edge], gpus: tuple[int, ...]) -> tuple[int, int]:
    """Largest sum and widest narrowest link over all orders, MB/s."""
    weights = link_mbps(topology)
    used = [[int(weights[o[a], o[b]]) for a, b in edges] for o in permutations(gpus)]
    return max(map(sum, used)), max(map(min, used))


@pytest.mark.parametrize("ranks", range(2, 6))
@pytest.mark.parametrize("seed", range(4))
def test_drawn_graphs_on_every_mask_of_a_dgx1v_are_placed_as_by_trying_all_orders(ranks, seed):
    topology, tables = machine("dgx1v"), Tables()
    edges = drawn_graph(ranks, seed)
    name = add_graph("drawn", ranks, edges)
    best = {mask_of(gpus): by_hand(topology, edges, gpus) for gpus in combinations(range(8), ranks)}
    table = tables.of(topology, name).sets(ranks)
    for mask, agg, weakest in zip(table.masks, table.agg, table.weakest, strict=True):
        assert (agg, weakest) == best[int(mask)]
    for free in range(1, 256):
        if free.bit_count() < ranks:
            continue
        sets = [mask_of(gpus) for gpus in combinations(gpus_of(free), ranks)]
        greedy = tables.top(topology, name, ranks, free, AGGREGATE)[0]
        assert greedy.mask == max(sets, key=lambda mask: best[mask][0])
        widest = tables.top(topology, name, ranks, free, EFFBW)[0]
        assert 1000 * widest.weakest_gbps == max(best[mask][1] for mask in sets)
        links = link_mbps(topology)
        used = [int(links[greedy.order[a], greedy.order[b]]) for a, b in edges]
        assert sum(used) == best[greedy.mask][0]


@pytest.mark.parametrize("seed", range(3))
def test_six_and_seven_ranks_on_drawn_machines_too(seed):
    topology, tables = drawn(7, seed), Tables()
    for ranks in (6, 7):
        edges = drawn_graph(ranks, seed)
        name = add_graph("drawn", ranks, edges)
        for free in (0x7F, 0x7E, 0x5F):
            if free.bit_count() < ranks:
                continue
            found = tables.top(topology, name, ranks, free, AGGREGATE)[0]
            sets = list(combinations(gpus_of(free), ranks))
            sums = {gpus: by_hand(topology, edges, gpus)[0] for gpus in sets}
            assert 1000 * found.agg_gbps == max(sums.values())


@pytest.mark.parametrize("seed", range(4))
def test_on_sixteen_gpus_the_widest_narrowest_link_is_found(seed):
    """No tables here: branch and bound, proven within its budget for four ranks."""
    topology, edges = machine("torus-16"), drawn_graph(4, seed)
    name = add_graph("drawn", 4, edges)
    free = 0x5A5B
    found = Tables().top(topology, name, 4, free, AGGREGATE)[0]
    assert found.proven
    told = [by_hand(topology, edges, gpus) for gpus in combinations(gpus_of(free), 4)]
    assert 1000 * found.weakest_gbps == max(widest for _, widest in told)
    match = best_match(link_mbps(topology), tuple(edges), 4, free)
    assert match.agg == round(1000 * found.agg_gbps)


def asked(policy: Mapa, pattern: str, *counts: int) -> Placement:
    nodes = {name: NodeState(name, machine("dgx1v"), 0xFF) for name in "ab"}
    placed = policy.place(Request(counts, pattern=pattern), Cluster(nodes))
    assert isinstance(placed, Placement)
    return placed


SQUARE = [(0, 1), (0, 3), (1, 2), (2, 3)]
STAR = [(0, 1), (0, 2), (0, 3)]


def test_a_name_with_other_contents_is_another_pattern():
    square, star = add_graph("halo", 4, SQUARE), add_graph("halo", 4, STAR)
    assert square != star
    assert asked(Mapa(), square, 4).gpus != asked(Mapa(), star, 4).gpus
    assert asked(MapaGreedy(), star, 4).gpus == asked(MapaGreedy(), "star", 4).gpus
    assert asked(MapaGreedy(), square, 4).agg_gbps == asked(MapaGreedy(), "ring", 4).agg_gbps


def test_a_ring_under_another_name_and_numbering_is_judged_as_a_ring():
    zigzag = add_graph("zigzag", 4, [(0, 2), (0, 3), (1, 2), (1, 3)])
    own, ring = asked(Mapa(), zigzag, 4), asked(Mapa(), "ring", 4)
    assert (set(own.gpus["a"]), own.effbw_gbps) == (set(ring.gpus["a"]), ring.effbw_gbps)
    assert pattern_of(add_graph("halo", 4, STAR)).judged_as.startswith("halo@")
    weights = link_mbps(machine("dgx1v"))
    order = own.gpus["a"]
    hops = [int(weights[order[a], order[b]]) for a, b in ((0, 2), (2, 1), (1, 3), (3, 0))]
    assert sum(hops) == 1000 * own.agg_gbps == 1000 * ring.agg_gbps


def test_the_order_and_the_way_of_writing_edges_do_not_make_another_pattern():
    assert add_graph("halo", 4, SQUARE) == add_graph("halo", 4, SQUARE[::-1])


def test_another_number_of_gpus_is_placed_as_a_ring_and_the_reason_says_so():
    halo = add_graph("halo", 4, STAR)
    assert (fitting(halo, 4), fitting(halo, 5), fitting("tree", 5)) == (halo, "ring", "tree")
    alone, ring = asked(Mapa(), halo, 5), asked(Mapa(), "ring", 5)
    assert alone.gpus == ring.gpus
    assert alone.effbw_gbps == ring.effbw_gbps
    assert alone.reason == ring.reason.replace("ring:", "ring (halo is for 4 GPUs):")
    assert asked(Mapa(), halo, 4).reason.startswith("halo: ")
    assert asked(Mapa(), halo, 4, 4).reason.startswith("halo: ")
    mixed = asked(Mapa(), halo, 4, 2)
    assert mixed.reason.startswith("halo (ring where a node has not 4 GPUs): ")
    assert asked(Mapa(), halo, 1).gpus == asked(Mapa(), "ring", 1).gpus


def test_people_read_the_name_they_wrote():
    assert pattern_of(add_graph("halo", 4, STAR)).title == "halo"
    assert pattern_of("ring").title == "ring"
