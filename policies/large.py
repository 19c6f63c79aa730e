"""Nodes of more than 16 GPUs: good sets by growing them, not by looking at all.

Not exact, and says so in its reason; on a machine whose links are all alike (one NVSwitch
domain) every set is equally good and growing finds one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gres_topology import NodeTopology
from policies.bandwidth import RING_EFFICIENCY
from policies.bits import Ints, gpus_of, mask_of
from policies.links import MB_PER_GB, link_mbps
from policies.patterns import pattern_of

#: How many first GPUs are tried.
_SEEDS = 16


@dataclass(frozen=True, slots=True)
class Grown:
    """A set in rank order with its bandwidths (GB/s, the model `rings`)."""

    mask: int
    order: tuple[int, ...]
    effbw_gbps: float
    agg_gbps: float
    weakest_gbps: float
    preserved_gbps: float


def _grow_from(weights: Ints, seed: int, free: tuple[int, ...], k: int) -> tuple[int, ...]:
    """Start at one GPU; always add the one best linked to the last, then to all."""
    order, rest = [seed], [gpu for gpu in free if gpu != seed]
    while len(order) < k:
        to_all = weights[np.ix_(rest, order)].sum(axis=1)
        to_last = weights[rest, order[-1]]
        at = int(np.lexsort((-to_all, -to_last))[0])
        order.append(rest.pop(at))
    return tuple(order)


def _measure(
    topology: NodeTopology, pattern: str, weights: Ints, order: tuple[int, ...], free: int
) -> Grown:
    used = [int(weights[order[a], order[b]]) for a, b in pattern_of(pattern).edges(len(order))]
    left = gpus_of(free & ~mask_of(order))
    weakest = min(used, default=0)
    return Grown(
        mask=mask_of(order),
        order=order,
        effbw_gbps=weakest * RING_EFFICIENCY / MB_PER_GB,
        agg_gbps=sum(used) / MB_PER_GB,
        weakest_gbps=weakest / MB_PER_GB,
        preserved_gbps=int(weights[np.ix_(left, left)].sum()) / 2 / MB_PER_GB,
    )


def grow(topology: NodeTopology, pattern: str, k: int, free: int) -> tuple[Grown, ...]:
    """Sets of k GPUs within `free`, best first: widest weakest link, sum, what is left."""
    weights, gpus = link_mbps(topology), gpus_of(free)
    step = max(1, len(gpus) // _SEEDS)
    found: dict[int, Grown] = {}
    for seed in gpus[::step]:
        grown = _measure(topology, pattern, weights, _grow_from(weights, seed, gpus, k), free)
        found.setdefault(grown.mask, grown)
    return tuple(
        sorted(
            found.values(),
            key=lambda g: (-g.weakest_gbps, -g.agg_gbps, -g.preserved_gbps, sorted(g.order)),
        )
    )
