"""The fast path equals the slow way, on every free mask and every size."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations, permutations
from random import Random

import numpy as np
import pytest
from brute_force import best_eq2, best_sum, preserved, widest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import drawn, machine, relabelled

from gres_topology.topology import Nic
from policies.contract.bits import gpus_of, mask_of, members, subsets
from policies.matching.links import link_mbps
from policies.matching.solved import solver_for
from policies.patterns.pattern import PATTERNS, TABULATED, fitting
from policies.scoring.objectives import AGGREGATE, BALANCED, EFFBW, PRESERVED, WIDEST, near_nics
from policies.scoring.rank_order import rank_order
from policies.scoring.tables import TOP, Tables

OBJECTIVES = (BALANCED, WIDEST, EFFBW, AGGREGATE, PRESERVED)


@pytest.fixture(scope="module")
def tables():
    return Tables()


@cache
def orders(k: int) -> np.ndarray:
    """All k! orders of the ranks."""
    return np.array(list(permutations(range(k))), dtype=np.int64)


def by_hand(weights: np.ndarray, pattern: str) -> dict[int, tuple[int, int]]:
    """For every set: the largest sum and the widest narrowest link over all its orders, MB/s."""
    found = {}
    for k in range(2, len(weights) + 1):
        edges = np.array(PATTERNS[pattern].edges(k))
        for gpus in combinations(range(len(weights)), k):
            placed = np.array(gpus)[orders(k)]
            sums, narrowest = 0, np.iinfo(np.int64).max
            for a, b in edges:
                used = weights[placed[:, a], placed[:, b]]
                sums, narrowest = sums + used, np.minimum(narrowest, used)
            found[mask_of(gpus)] = (int(sums.max()), int(narrowest.max()))
    return found


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_dgx1v_is_answered_as_by_trying_every_order_of_every_set_in_every_mask(tables, pattern):
    topology = machine("dgx1v")
    best = by_hand(link_mbps(topology), pattern)
    for k in range(2, 9):
        table = tables.of(topology, pattern).sets(k)
        for mask, agg, weakest in zip(table.masks, table.agg, table.weakest, strict=True):
            assert (agg, weakest) == best[int(mask)], gpus_of(int(mask))
    for free in range(1, 256):
        for k in range(2, free.bit_count() + 1):
            sets = [mask_of(gpus) for gpus in combinations(gpus_of(free), k)]
            choice = tables.top(topology, pattern, k, free, AGGREGATE)[0]
            assert choice.mask == max(sets, key=lambda mask: best[mask][0])
            assert 1000 * choice.agg_gbps == best[choice.mask][0]


@pytest.mark.parametrize("name", ["dgx1v", "mi250x", "a100-pcie-bridged"])
@pytest.mark.parametrize("pattern", ["ring", "tree"])
def test_gpus_that_somebody_else_chose_are_worth_what_their_links_are(tables, name, pattern):
    topology = machine(name)
    weights = link_mbps(topology)
    for free in (0xFF, 0xB7, 0x1E):
        for order in permutations(gpus_of(free), 3):
            worth = tables.worth(topology, pattern, order, free)
            left = gpus_of(free & ~mask_of(order))
            assert (worth.mask, worth.order) == (mask_of(order), order)
            assert 1000 * worth.preserved_gbps == sum(weights[p] for p in combinations(left, 2))
            edges = PATTERNS[pattern].edges(3)
            assert 1000 * worth.agg_gbps == sum(weights[order[a], order[b]] for a, b in edges)
            best = tables.top(topology, pattern, 3, worth.mask, WIDEST)[0]
            assert (worth.weakest_gbps, worth.effbw_gbps) == (best.weakest_gbps, best.effbw_gbps)
            assert worth.score == worth.share == pytest.approx(best.share)


def test_rings_of_two_to_five_are_scored_by_eq2_as_by_trying_all_orders(tables):
    topology = machine("dgx1v")
    for k in range(2, 6):
        table = tables.of(topology, "ring").sets(k)
        for row, gpus in enumerate(combinations(range(8), k)):
            assert table.effbw[row] == pytest.approx(best_eq2(topology, gpus))


@pytest.mark.parametrize("free", range(1, 256))
def test_the_best_of_every_free_mask_is_the_best_by_brute_force(tables, free):
    """Exhaustive on dgx1v: all masks, all sizes, the three objectives of the paper."""
    topology = machine("dgx1v")
    gpus = gpus_of(free)
    for k in range(1, len(gpus) + 1):
        table = tables.of(topology, "ring").sets(k)
        worth = {int(mask): row for row, mask in enumerate(table.masks)}
        rows = {s: worth[mask_of(s)] for s in combinations(gpus, k)}
        left = {s: preserved(topology, gpus, s) for s in rows}
        greedy = min(rows, key=lambda s: (-table.agg[rows[s]], s))
        sensitive = min(rows, key=lambda s: (-table.effbw[rows[s]], -left[s], s))
        insensitive = min(rows, key=lambda s: (-left[s], -table.effbw[rows[s]], s))
        for objective, expected in (
            (AGGREGATE, greedy),
            (EFFBW, sensitive),
            (PRESERVED, insensitive),
        ):
            choice = tables.top(topology, "ring", k, free, objective)[0]
            assert choice.mask == mask_of(expected), objective.name
            assert choice.preserved_gbps == pytest.approx(left[expected])


@pytest.mark.parametrize("free", range(1, 256, 3))
def test_the_default_takes_the_largest_score_and_what_it_leaves_is_counted_by_hand(tables, free):
    topology = machine("dgx1v")
    gpus = gpus_of(free)
    known = tables.of(topology, "ring")

    def future(left: tuple[int, ...]) -> float:
        total = 0.0
        for k in range(2, 6):
            best = known.sets(k).effbw.max()
            found = [best_eq2(topology, s) for s in combinations(left, k)]
            total += max(found, default=0.0) / best / 4
        return max(total, 0.0)

    for k in (2, 3):
        if len(gpus) < k:
            continue
        choice = tables.top(topology, "ring", k, free, BALANCED)[0]
        left = tuple(gpu for gpu in gpus if gpu not in gpus_of(choice.mask))
        assert choice.loss == pytest.approx(future(gpus) - future(left))
        _, scored = known.score(k, free, BALANCED)
        assert choice.score == pytest.approx(float(BALANCED.score(scored).max()))


@given(st.integers(2, 7), st.integers(0, 10_000), st.sampled_from(sorted(PATTERNS)), st.data())
@settings(max_examples=60)
def test_on_any_machine_the_tables_equal_trying_all_orders(gpus, seed, pattern, data):
    topology = drawn(gpus, seed)
    k = data.draw(st.integers(2, min(gpus, 6)))
    chosen = tuple(sorted(data.draw(st.permutations(range(gpus)))[:k]))
    table = Tables().of(topology, pattern).sets(k)
    row = int(np.flatnonzero(table.masks == mask_of(chosen))[0])
    assert table.agg[row] == 1000 * best_sum(topology, pattern, chosen)
    assert table.weakest[row] == 1000 * widest(topology, pattern, chosen)


@given(
    st.integers(1, 7),
    st.integers(0, 10_000),
    st.sampled_from(sorted(PATTERNS)),
    st.sampled_from(OBJECTIVES),
    st.data(),
)
@settings(max_examples=80)
def test_renaming_the_gpus_never_changes_a_score(gpus, seed, pattern, objective, data):
    topology = drawn(gpus, seed)
    order = tuple(data.draw(st.permutations(range(gpus))))
    k = data.draw(st.integers(1, gpus))
    full = (1 << gpus) - 1
    one = Tables().top(topology, pattern, k, full, objective)[0]
    other = Tables().top(relabelled(topology, order), pattern, k, full, objective)[0]
    assert other.score == one.score
    # Sets that an objective does not tell apart may differ in what it does not look at.
    if objective is not AGGREGATE:
        assert other.effbw_gbps == one.effbw_gbps


@given(st.integers(0, 10_000), st.integers(1, 255), st.sampled_from(sorted(PATTERNS)), st.data())
@settings(max_examples=80)
def test_a_rank_order_holds_the_set_once_and_uses_its_widest_matching(seed, free, pattern, data):
    topology = drawn(8, seed)
    k = data.draw(st.integers(1, free.bit_count()))
    choice = Tables().top(topology, pattern, k, free, BALANCED)[0]
    assert mask_of(choice.order) == choice.mask
    assert len(choice.order) == k
    assert choice.mask & ~free == 0
    edges = PATTERNS[pattern].edges(k)
    used = [topology.bandwidth_gbps[choice.order[a], choice.order[b]] for a, b in edges]
    assert min(used, default=0.0) == choice.weakest_gbps
    assert sum(used) == choice.agg_gbps


@pytest.mark.parametrize(
    ("sentence", "pattern", "gpus", "expected"),
    [
        ("a ring starts at the lowest id", "ring", (1, 2, 5, 6), (1, 2, 6, 5)),
        ("the quad's ring uses its three double links", "ring", (0, 1, 2, 3), (0, 1, 2, 3)),
        ("a chain goes along the double links", "chain", (0, 1, 2, 3), (0, 3, 2, 1)),
        ("a star's centre comes first", "star", (0, 1, 3, 7), (3, 0, 1, 7)),
        ("a tree's root comes first", "tree", (1, 2, 3), (2, 1, 3)),
        ("all to all keeps the ids in order", "all-to-all", (1, 2, 3), (1, 2, 3)),
        ("one GPU is its own order", "ring", (6,), (6,)),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_rank_order_on_a_dgx1v(sentence, pattern, gpus, expected):
    topology = machine("dgx1v")
    weakest = round(1000 * widest(topology, pattern, gpus))
    assert rank_order(topology, pattern, gpus, weakest, "widest") == expected


@pytest.mark.parametrize("name", ["torus-16", "cubemesh-16"])
@pytest.mark.parametrize("pattern", TABULATED)
def test_sixteen_gpus_are_scored_as_by_trying_all_orders(tables, name, pattern):
    topology = machine(name)
    for k in (2, 4, 6):
        table = tables.of(topology, pattern).sets(k)
        for row in range(0, len(table.masks), len(table.masks) // 12):
            gpus = gpus_of(int(table.masks[row]))
            assert table.agg[row] == 1000 * best_sum(topology, pattern, gpus)
            assert table.weakest[row] == 1000 * widest(topology, pattern, gpus)


@pytest.mark.parametrize("pattern", TABULATED)
def test_all_sixteen_gpus_at_once_get_an_order_as_good_as_its_score(tables, pattern):
    topology = machine("torus-16")
    choice = tables.top(topology, pattern, 16, 0xFFFF, AGGREGATE)[0]
    table = tables.of(topology, pattern).sets(16)
    assert sorted(choice.order) == list(range(16))
    assert choice.agg_gbps == table.agg[0] / 1000


def test_a_torus_has_a_ring_of_double_links_through_no_host():
    """Four rows and four columns of a torus: a Hamiltonian ring needs no PCIe hop."""
    table = Tables().of(machine("torus-16"), "ring").sets(16)
    assert table.weakest[0] > 12_000


@pytest.mark.parametrize("k", [5, 7, 11])
def test_trees_of_odd_sizes_have_as_many_links_as_they_need(k):
    """A solver that lost a rank would find a smaller sum on a machine of equal links."""
    weights = np.full((12, 12), 7, dtype=np.int64)
    np.fill_diagonal(weights, 0)
    for pattern in TABULATED:
        sums = solver_for(pattern, weights).sums(k)
        assert (sums == 7 * len(PATTERNS[pattern].edges(k))).all()


def test_subsets_come_lowest_ids_first():
    assert [gpus_of(int(mask)) for mask in subsets(4, 2)] == list(combinations(range(4), 2))
    assert members(4, 2).shape == (6, 2)


def test_answers_are_forgotten_before_they_fill_the_memory(monkeypatch):
    monkeypatch.setattr("policies.scoring.tables.REMEMBERED", 10)
    tables = Tables()
    topology = machine("dgx1v")
    for free in range(3, 256):
        if free.bit_count() >= 2:
            tables.top(topology, "ring", 2, free, AGGREGATE)[0]
    assert len(tables._answers) <= 10


@pytest.mark.parametrize("name", ["dgx2", "dgx-h100", "minsky", "mi300x"])
@pytest.mark.parametrize("pattern", ["ring", "tree"])
def test_which_of_gpus_that_are_alike_are_free_changes_no_answer(name, pattern):
    topology, draw = machine(name), Random(name)
    remembered, anew = Tables(), Tables()
    for _ in range(60):
        free = draw.getrandbits(topology.gpus) | 0b11
        k, objective = draw.randint(1, min(5, free.bit_count())), draw.choice(OBJECTIVES)
        for wanted in (objective, near_nics(objective, topology.nic_distance)):
            found = remembered.top(topology, pattern, k, free, wanted)
            fitted = "ring" if k == 1 else fitting(pattern, k)
            assert found == anew.of(topology, fitted).top(k, free, wanted, TOP)
            assert remembered.first(topology, pattern, k, free, wanted) == found[0]


def test_gpus_with_other_ways_to_nics_are_told_apart():
    near, tables = machine("dgx2"), Tables()
    paths = tuple("PIX" if gpu == 5 else "SYS" for gpu in range(16))
    other = replace(near, nics=(Nic("mlx5_0", paths),))
    assert near.shape == other.shape
    for free in (0b111111, 0b101111):
        for topology in (near, other):
            wanted = near_nics(BALANCED, topology.nic_distance)
            best = tables.first(topology, "ring", 2, free, wanted)
            assert best == Tables().of(topology, "ring").top(2, free, wanted, 1)[0]
