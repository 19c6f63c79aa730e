"""Every free mask of a dgx1v, every pattern, every size: the answer is that of brute force."""

from __future__ import annotations

from functools import cache
from itertools import combinations, permutations

import numpy as np
import pytest
from machines import drawn, machine

from policies.contract.bits import gpus_of, mask_of
from policies.matching.links import link_mbps
from policies.patterns.pattern import PATTERNS
from policies.scoring.objectives import AGGREGATE
from policies.scoring.tables import Tables


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
def test_a_dgx1v_is_answered_as_by_trying_every_order_of_every_set_in_every_mask(pattern):
    topology, tables = machine("dgx1v"), Tables()
    best = by_hand(link_mbps(topology), pattern)
    for k in range(2, 9):
        table = tables.of(topology, pattern).sets(k)
        for mask, agg, weakest in zip(table.masks, table.agg, table.weakest, strict=True):
            assert (agg, weakest) == best[int(mask)], gpus_of(int(mask))
    for free in range(1, 256):
        for k in range(2, free.bit_count() + 1):
            sets = [mask_of(gpus) for gpus in combinations(gpus_of(free), k)]
            choice = tables.best(topology, pattern, k, free, AGGREGATE)
            assert choice.mask == max(sets, key=lambda mask: best[mask][0])
            assert 1000 * choice.agg_gbps == best[choice.mask][0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("pattern", PATTERNS)
def test_random_masks_of_drawn_machines_are_answered_as_by_trying_all_orders(pattern, seed):
    topology, tables = drawn(7, seed), Tables()
    best = by_hand(link_mbps(topology), pattern)
    draw = np.random.default_rng(seed)
    for free in draw.integers(1, 128, size=20):
        held = gpus_of(int(free))
        for k in range(2, len(held) + 1):
            choice = tables.best(topology, pattern, k, int(free), AGGREGATE)
            sets = [mask_of(gpus) for gpus in combinations(held, k)]
            assert choice.mask == max(sets, key=lambda mask: best[mask][0])
