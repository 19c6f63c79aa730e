"""Sets of what no table holds: nodes of more than 16 GPUs, other graphs on more than 8.

The best matching comes from branch and bound (`policies.matching.search`). Growing sets from some
GPUs adds others as good, of which the one that leaves most is taken, and alternatives for the
decision log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from gres_topology import NodeTopology
from policies.contract.bits import Ints, gpus_of, mask_of
from policies.matching.choice import Choice
from policies.matching.links import MB_PER_GB, RING_EFFICIENCY, link_mbps
from policies.matching.search import best_match
from policies.patterns.pattern import pattern_of

#: Answers kept with all alternatives, some 5 KB each; the best sets alone, 0.5 KB each; and the
#: links among free GPUs, some 6 KB each.
REMEMBERED, FIRSTS_REMEMBERED, LINKS_REMEMBERED = 1_000, 40_000, 2_000
#: How many first GPUs are tried.
_SEEDS = 16


def _grow_from(weights: Ints, seed: int, free: tuple[int, ...], k: int) -> tuple[int, ...]:
    """Start at one GPU; always add the one best linked to the last, among equals to all."""
    order, rest = [seed], [gpu for gpu in free if gpu != seed]
    to_last = to_all = weights[rest, seed]
    while len(order) < k:
        at = int(np.lexsort((-to_all, -to_last))[0])
        order.append(rest.pop(at))
        to_last = weights[rest, order[-1]]
        to_all = np.delete(to_all, at) + to_last
    return tuple(order)


def measured(weights: Ints, pattern: str, order: tuple[int, ...], free: int) -> Choice:
    """What a set in that rank order is worth by the model `rings`; not known to be the best.

    `weights` are the links in MB/s, shape (GPUs, GPUs); `free` is the mask of the free GPUs.
    """
    used = [int(weights[order[a], order[b]]) for a, b in pattern_of(pattern).edges(len(order))]
    left = gpus_of(free & ~mask_of(order))
    weakest = min(used, default=0)
    effbw = weakest * RING_EFFICIENCY / MB_PER_GB
    return Choice(
        mask=mask_of(order),
        order=order,
        score=effbw,
        effbw_gbps=effbw,
        agg_gbps=sum(used) / MB_PER_GB,
        preserved_gbps=int(weights[np.ix_(left, left)].sum()) / 2 / MB_PER_GB,
        weakest_gbps=weakest / MB_PER_GB,
        proven=False,
    )


def grow(topology: NodeTopology, pattern: str, k: int, free: int) -> tuple[Choice, ...]:
    """Sets of k GPUs within `free`, best first: widest weakest link, sum, what is left."""
    return _grown(link_mbps(topology), pattern, k, free)


def _grown(weights: Ints, pattern: str, k: int, free: int) -> tuple[Choice, ...]:
    gpus = gpus_of(free)
    step = max(1, len(gpus) // _SEEDS)
    orders = [_grow_from(weights, seed, gpus, k) for seed in gpus[::step]]
    return _ranked(measured(weights, pattern, order, free) for order in orders)


def _ranked(sets: Iterable[Choice]) -> tuple[Choice, ...]:
    """Each set once, best first; ties to the lowest ids."""
    ranked = sorted(
        sets, key=lambda g: (-g.weakest_gbps, -g.agg_gbps, -g.preserved_gbps, sorted(g.order))
    )
    best: dict[int, Choice] = {}
    for grown in ranked:
        best.setdefault(grown.mask, grown)
    return tuple(best.values())


def find(topology: NodeTopology, pattern: str, k: int, free: int, most: int) -> tuple[Choice, ...]:
    """The first `most` of `grow`, with the best matching there is; the first says if it is proven.

    Only the links among the free GPUs count: masks with equal ones are searched once.
    """
    gpus, links = _among(topology, free)
    asked = (links, len(gpus), pattern, k)
    found = (_first(*asked),) if most == 1 else _found(*asked)[:most]
    return tuple(choice.on(gpus) for choice in found)


def firsts(
    topology: NodeTopology, pattern: str, k: int, frees: Iterable[int]
) -> Iterator[tuple[tuple[int, ...], Choice]]:
    """The free GPUs of each mask, and the first of `find` there, GPUs counted among these."""
    for free in frees:
        gpus, links = _among(topology, free)
        yield gpus, _first(links, len(gpus), pattern, k)


#: By shape of node and free GPUs: these, and the links among them as rows of int64, MB/s.
_links_among: dict[tuple[str, int], tuple[tuple[int, ...], bytes]] = {}


def _among(topology: NodeTopology, free: int) -> tuple[tuple[int, ...], bytes]:
    """The free GPUs and the links among them: one object for many questions."""
    key = (topology.shape, free)
    known = _links_among.get(key)
    if known is None:
        if len(_links_among) >= LINKS_REMEMBERED:
            _links_among.clear()
        gpus = gpus_of(free)
        known = gpus, link_mbps(topology)[:, gpus][gpus, :].tobytes()
        _links_among[key] = known
    return known


@lru_cache(FIRSTS_REMEMBERED)
def _first(links: bytes, gpus: int, pattern: str, k: int) -> Choice:
    """The first that `_found` finds; most questions need no other."""
    return _found(links, gpus, pattern, k)[0]


@lru_cache(REMEMBERED)
def _found(links: bytes, gpus: int, pattern: str, k: int) -> tuple[Choice, ...]:
    """What `find` finds among so many GPUs, all free; `links` are rows of int64, MB/s."""
    weights, full = np.frombuffer(links, dtype=np.int64).reshape(gpus, gpus), (1 << gpus) - 1
    match = best_match(weights, pattern_of(pattern).edges(k), k, full)
    best = measured(weights, pattern, match.order, full)
    ranked = _ranked([best, *_grown(weights, pattern, k, full)])
    return (replace(ranked[0], proven=match.proven), *ranked[1:])


def ideal_gbps(topology: NodeTopology, pattern: str, k: int) -> float:
    """The best effective bandwidth of k GPUs on the empty node, by the model `rings`."""
    weights, full = link_mbps(topology), (1 << topology.gpus) - 1
    match = best_match(weights, pattern_of(pattern).edges(k), k, full)
    return measured(weights, pattern, match.order, full).effbw_gbps
