"""Rank order: which GPU of a chosen set gets which rank, so that neighbours are near.

Rings start at the lowest id and go towards the smaller of the two possible second ids; of equally
good matchings the lexicographically first is taken.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gres_topology import NodeTopology
from policies.bandwidth.model import eq2, model_for, ring_orders
from policies.contract.bits import EXACT_GPUS, Ints, mask_of
from policies.matching.graph_solver import MOST_GPUS
from policies.matching.links import link_mbps
from policies.matching.search import best_match
from policies.matching.solved import solved
from policies.patterns.pattern import fitting, pattern_of


def _best_ring(topology: NodeTopology, gpus: tuple[int, ...], weights: Ints) -> tuple[int, ...]:
    """The ring eq. 2 likes best; then the widest, then the first."""

    def key(ring: Ints) -> tuple[float, int]:
        hops = [(gpus[a], gpus[b]) for a, b in pairwise(ring)]
        kinds = [topology.kinds[a][b] for a, b in hops]
        x, y = kinds.count("NV2"), kinds.count("NV1")
        return eq2(x, y, len(hops) - x - y), min(int(weights[hop]) for hop in hops)

    return tuple(int(at) for at in max(ring_orders(len(gpus)), key=key)[: len(gpus)])


def rank_order(
    topology: NodeTopology, pattern: str, gpus: tuple[int, ...], weakest: int, prefers: str
) -> tuple[int, ...]:
    """The GPUs (ascending on entry) in rank order.

    `weakest` is the narrowest link of their widest matching in MB/s; `prefers` as in
    Objective.
    """
    k = len(gpus)
    if k == 1:
        return gpus
    weights, pattern = link_mbps(topology), fitting(pattern, k)
    is_eq2 = prefers == "effbw" and pattern == "ring"
    if is_eq2 and model_for(topology, pattern, k).name == "mapa-dgx1v":
        local = _best_ring(topology, gpus, weights)
        return tuple(gpus[at] for at in local)
    return _solved(pattern, weights, gpus, 0 if prefers == "agg" else weakest)


def _solved(pattern: str, weights: Ints, gpus: tuple[int, ...], narrowest: int) -> tuple[int, ...]:
    """The order of the largest sum of links among those no narrower than `narrowest`."""
    k, kind = len(gpus), pattern_of(pattern)
    if k > MOST_GPUS and not kind.tabulated:
        return best_match(weights, kind.edges(k), k, mask_of(gpus)).order
    if len(weights) <= EXACT_GPUS:
        return solved.sums(pattern, weights, narrowest).order(mask_of(gpus))
    links = np.ascontiguousarray(weights[np.ix_(gpus, gpus)])
    local = solved.sums(pattern, links, narrowest).order((1 << k) - 1)
    return tuple(gpus[at] for at in local)
