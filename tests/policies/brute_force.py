"""The slow way to everything the tables hold: all subsets, all orders, nothing clever."""

from __future__ import annotations

from itertools import combinations, pairwise, permutations

import numpy as np

from gres_topology import NodeTopology
from policies.bandwidth.model import eq2, ring_orders
from policies.patterns.pattern import PATTERNS


def matchings(topology: NodeTopology, pattern: str, gpus: tuple[int, ...]) -> list[list[float]]:
    """The links used (GB/s) by every assignment of ranks to these GPUs."""
    edges = PATTERNS[pattern].edges(len(gpus))
    links = topology.bandwidth_gbps
    return [[float(links[order[a], order[b]]) for a, b in edges] for order in permutations(gpus)]


def best_sum(topology: NodeTopology, pattern: str, gpus: tuple[int, ...]) -> float:
    """Largest AggBW over all matchings."""
    return max(sum(used) for used in matchings(topology, pattern, gpus))


def widest(topology: NodeTopology, pattern: str, gpus: tuple[int, ...]) -> float:
    """Largest weakest link over all matchings."""
    return max(min(used, default=0.0) for used in matchings(topology, pattern, gpus))


def best_eq2(topology: NodeTopology, gpus: tuple[int, ...]) -> float:
    """Best ring by eq. 2."""
    return max(
        eq2(used.count(50.0), used.count(25.0), len(used) - used.count(50.0) - used.count(25.0))
        for used in matchings(topology, "ring", gpus)
    )


def preserved(topology: NodeTopology, free: tuple[int, ...], gpus: tuple[int, ...]) -> float:
    """Bandwidth left among the free GPUs."""
    left = [gpu for gpu in free if gpu not in gpus]
    return float(sum(topology.bandwidth_gbps[a, b] for a, b in combinations(left, 2)))


def rings_that_fit(links: np.ndarray, wanted: int) -> int:
    """How many directed rings over a set share no link, `links[a, b]` of them one way; at most
    `wanted` are looked for."""
    k, most = len(links), 0
    hops = [list(pairwise(order)) for order in ring_orders(k).tolist()]
    rings = [ring for way in hops for ring in (way, [(b, a) for a, b in way])]
    rings = [ring for ring in rings if all(links[hop] for hop in ring)]

    def dive(first: int, count: int) -> None:
        nonlocal most
        most = max(most, count)
        for at in range(first, len(rings)):
            if most >= wanted:
                return
            if all(links[hop] for hop in rings[at]):
                for hop in rings[at]:
                    links[hop] -= 1
                dive(at, count + 1)
                for hop in rings[at]:
                    links[hop] += 1

    dive(0, 0)
    return most
