"""What no table holds is searched, and what is proven the best is the best."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from brute_force import matchings
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import drawn, machine, relabelled

from policies.contract.bits import gpus_of, mask_of
from policies.matching import search
from policies.matching.large import _grow_from
from policies.matching.links import link_mbps
from policies.matching.solved import solver_for
from policies.matching.solvers import NARROWEST
from policies.matching.symmetry import renamings, symmetry, twins
from policies.patterns.pattern import PATTERNS
from policies.scoring.objectives import AGGREGATE, BALANCED
from policies.scoring.tables import TOP, Tables


@given(st.integers(2, 6), st.integers(0, 10_000), st.sampled_from(sorted(PATTERNS)), st.data())
@settings(max_examples=60)
def test_the_search_finds_the_widest_then_the_largest_as_by_trying_all(gpus, seed, pattern, data):
    topology = drawn(gpus, seed)
    k = data.draw(st.integers(2, min(gpus, 5)))
    held = tuple(sorted(data.draw(st.permutations(range(gpus)))[: data.draw(st.integers(k, gpus))]))
    found = search.best_match(link_mbps(topology), PATTERNS[pattern].edges(k), k, mask_of(held))
    best = max(
        (min(used), sum(used))
        for chosen in combinations(held, k)
        for used in matchings(topology, pattern, chosen)
    )
    assert found.proven
    assert (found.weakest, found.agg) == (1000 * best[0], 1000 * best[1])
    assert mask_of(found.order) & ~mask_of(held) == 0
    used = [
        topology.bandwidth_gbps[found.order[a], found.order[b]]
        for a, b in PATTERNS[pattern].edges(k)
    ]
    assert (1000 * min(used), 1000 * sum(used)) == (found.weakest, found.agg)


@pytest.mark.parametrize("k", [4, 6, 9])
def test_on_random_masks_of_a_torus_the_search_agrees_with_the_tables(k):
    topology = machine("torus-16")
    weights, draw = link_mbps(topology), np.random.default_rng(k)
    table = Tables().of(topology, "ring").sets(k)
    proven = 0
    for _ in range(6):
        free = mask_of(int(gpu) for gpu in draw.permutation(16)[:12])
        inside = table.masks & ~np.int64(free) == 0
        found = search.best_match(weights, PATTERNS["ring"].edges(k), k, free)
        widest = int(table.weakest[inside].max())
        assert found.weakest <= widest
        if found.proven:
            proven += 1
            assert found.weakest == widest
    assert proven


def test_a_search_that_runs_out_of_steps_says_that_nothing_is_proven(monkeypatch):
    monkeypatch.setattr(search, "STEPS", 20)
    weights = link_mbps(machine("torus-16"))
    found = search.best_match(weights, PATTERNS["ring+tree"].edges(12), 12, 0xFFFF)
    assert not found.proven
    assert len(set(found.order)) == 12


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("k", "busy"), [(2, 0), (17, 0), (24, 0b111), (72, 0)])
def test_seventy_two_equal_gpus_get_a_proven_best_answer(pattern, k, busy):
    topology, tables = machine("gb200-nvl72"), Tables()
    choice = tables.top(topology, pattern, k, (1 << 72) - 1 - busy, BALANCED)[0]
    assert choice.proven
    assert not choice.mask & busy
    assert choice.effbw_gbps == tables.ideal_effbw_gbps(topology, pattern, k)
    assert len(set(choice.order)) == k
    assert choice.agg_gbps == 900 * len(PATTERNS[pattern].edges(k))


def test_the_best_set_of_a_large_machine_comes_with_others_for_the_decision_log():
    found = Tables().top(machine("gb200-nvl72"), "ring", 4, (1 << 72) - 1, BALANCED)
    assert len({choice.mask for choice in found}) == len(found) == TOP


def test_a_narrow_gpu_of_a_large_domain_is_left_out_when_it_can_be():
    weights = np.full((40, 40), 900_000, dtype=np.int64)
    weights[7, :] = weights[:, 7] = 50_000
    np.fill_diagonal(weights, 0)
    found = search.best_match(weights, PATTERNS["ring"].edges(39), 39, (1 << 40) - 1)
    assert found.proven
    assert found.weakest == 900_000
    assert 7 not in found.order


@pytest.mark.parametrize("pattern", ["ring+tree", "hypercube"])
def test_a_graph_without_tables_gets_an_answer_of_its_own_on_sixteen_gpus(pattern):
    topology = machine("torus-16")
    choice = Tables().top(topology, pattern, 6, 0xFF0F, AGGREGATE)[0]
    edges = PATTERNS[pattern].edges(6)
    used = [topology.bandwidth_gbps[choice.order[a], choice.order[b]] for a, b in edges]
    assert (min(used), sum(used)) == (choice.weakest_gbps, choice.agg_gbps)
    assert choice.mask & ~0xFF0F == 0


@pytest.mark.parametrize("name", ["dgx1v", "torus-16", "dgx2", "mi250x"])
def test_symmetries_change_no_link_and_send_a_set_to_the_one_that_stands_for_it(name):
    weights = link_mbps(machine(name))
    found = symmetry(weights)
    for renaming in found.renamings:
        assert (weights[np.ix_(renaming, renaming)] == weights).all()
    for mask in range(1, 1 << len(weights), 37):
        renaming = found.renamings[found.via[mask]]
        assert mask_of(int(renaming[gpu]) for gpu in gpus_of(mask)) == found.canon[mask]
        assert found.canon[found.canon[mask]] == found.canon[mask]


def test_the_symmetries_of_a_ring_of_five_are_its_turns_and_mirror_images():
    ring = np.zeros((5, 5), dtype=np.int64)
    for rank in range(5):
        ring[rank, (rank + 1) % 5] = ring[(rank + 1) % 5, rank] = 1
    assert len({renaming for renaming, _ in renamings(ring)}) == 10


def test_the_ends_of_a_chain_may_change_places_and_nothing_else():
    """Its middle has other links than they, so that no renaming puts it first."""
    chain = np.array([[0, 2, 1], [2, 0, 2], [1, 2, 0]], dtype=np.int64)
    assert set(renamings(chain)) == {((0, 1, 2), True), ((2, 1, 0), True)}


def test_the_two_of_a_bridged_pair_are_twins_and_others_are_not():
    weights = link_mbps(machine("a100-pcie-bridged"))
    bridged = [int(row.argmax()) for row in weights]
    assert twins(weights) == [min(gpu, other) for gpu, other in enumerate(bridged)]


@given(st.integers(0, 10_000), st.data())
@settings(max_examples=15)
def test_trees_on_a_machine_with_symmetries_are_worth_the_same_after_renaming(seed, data):
    topology = machine("dgx1v")
    order = tuple(data.draw(st.permutations(range(8))))
    other = link_mbps(relabelled(topology, order))
    for k in (5, 7):
        one = solver_for("tree", link_mbps(topology), NARROWEST).sums(k)
        two = solver_for("tree", other, NARROWEST).sums(k)
        assert sorted(one) == sorted(two)


def test_a_set_grows_by_the_link_to_the_last_and_then_by_those_to_all_that_are_in():
    """After 0, 1 and 2 both others are linked to 2 alike, and GPU 4 to GPU 1 besides."""
    weights = np.zeros((5, 5), dtype=np.int64)
    for a, b, mbps in ((0, 1, 9), (1, 2, 9), (2, 3, 1), (2, 4, 1), (1, 4, 1)):
        weights[a, b] = weights[b, a] = mbps
    assert _grow_from(weights, 0, (0, 1, 2, 3, 4), 5)[:4] == (0, 1, 2, 4)
