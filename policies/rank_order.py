"""Rank order: which GPU of a chosen set gets which rank, so that neighbours are near.

Deterministic: rings start at the lowest id and go towards the smaller of the two possible
second ids; among equally good matchings the lexicographically first is taken.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np

from gres_topology import NodeTopology
from policies.bandwidth import eq2, model_for, ring_orders
from policies.bits import Ints
from policies.links import at_least, link_mbps
from policies.solvers import solver_for


@lru_cache(maxsize=16_384)
def _solved(pattern: str, k: int, links: bytes) -> tuple[int, ...]:
    weights = np.frombuffer(links, dtype=np.int64).reshape(k, k)
    return solver_for(pattern, weights).order()


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
    weights = link_mbps(topology)
    if prefers == "effbw" and model_for(topology, pattern, k).name == "mapa-dgx1v":
        local = _best_ring(topology, gpus, weights)
    else:
        links = weights[np.ix_(gpus, gpus)]
        if prefers != "agg":
            links = at_least(links, weakest)
        local = _solved(pattern, k, np.ascontiguousarray(links).tobytes())
    return tuple(gpus[at] for at in local)
