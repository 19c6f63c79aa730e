"""Branch and bound for what no table holds: nodes of more than 16 GPUs, and any graph on more
than 8. The best matching is the one with the widest narrowest link, then the largest sum.

Ranks are placed one by one, each next to a placed one. A branch is cut when its sum, plus the
largest link there is for each edge still to place, is no better than the best known. GPUs with
the same links to all others are tried once, and so are ranks that a symmetry of the pattern
swaps. The budget is one of steps and not of time, so that the answer never depends on the
machine's load; an answer not proven within it says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from policies.contract.bits import Ints, gpus_of, mask_of
from policies.matching.links import widths
from policies.matching.pattern_symmetry import Edges, first_of_each
from policies.matching.symmetry import twins

#: GPUs tried per question, for each of the two goals.
STEPS = 6_000
#: Patterns of more ranks are searched without their symmetries: finding those takes longer.
_SYMMETRIC_RANKS = 16


@dataclass(frozen=True, slots=True)
class Match:
    """A matching, and the narrowest link and the sum of links that it uses, MB/s."""

    #: The GPUs in rank order.
    order: tuple[int, ...]
    weakest: int
    agg: int
    #: Whether there is none better among the free GPUs.
    proven: bool


def _rank_order(k: int, edges: Edges) -> tuple[tuple[int, ...], list[list[int]]]:
    """An order of ranks in which each has a neighbour before it; the places of those neighbours."""
    near: list[set[int]] = [set() for _ in range(k)]
    for a, b in edges:
        near[a].add(b)
        near[b].add(a)
    placed = [max(range(k), key=lambda rank: (len(near[rank]), -rank))] if k else []
    while len(placed) < k:
        rest = [rank for rank in range(k) if rank not in placed]
        placed.append(max(rest, key=lambda r: (len(near[r].intersection(placed)), -r)))
    at = {rank: place for place, rank in enumerate(placed)}
    before = [sorted(at[other] for other in near[rank] if at[other] < at[rank]) for rank in placed]
    return tuple(placed), before


class _Search:
    """One question: a graph of k ranks, the free GPUs, links of at least one width."""

    def __init__(self, weights: Ints, edges: Edges, k: int, free: int) -> None:
        self.links: list[list[int]] = weights.tolist()
        self.free, self.k = gpus_of(free), k
        self.ranks, self.before = _rank_order(k, edges)
        self.twin = twins(weights)
        place = {rank: at for at, rank in enumerate(self.ranks)}
        pairs = first_of_each(k, edges, self.ranks) if k <= _SYMMETRIC_RANKS else ()
        self.above: list[list[int]] = [[] for _ in range(k)]
        for low, high in pairs:
            self.above[place[high]].append(place[low])
        #: Edges still to place before each place.
        sizes = [len(before) for before in self.before]
        self.open = [sum(sizes[at:]) for at in range(k + 1)]
        self.best: tuple[int, ...] | None = None
        self.best_sum, self.steps, self.first_only = -1, 0, False

    def run(self, width: int, *, first_only: bool) -> bool:
        """Look for the largest sum, or any matching; True when the search was completed."""
        self.width, self.first_only, self.steps = width, first_only, 0
        inner = [self.links[a][b] for a in self.free for b in self.free if a < b]
        allowed = sorted((link for link in inner if link >= width), reverse=True)
        self.most = [0, *accumulate(allowed[: self.open[0]])]
        if len(self.most) <= self.open[0]:
            return True  # fewer links than edges
        self._dive()
        return self.steps < STEPS

    def _candidates(self, placed: list[int], value: int) -> list[tuple[int, int]]:
        """(sum after it, GPU) for every GPU that the next rank may take, worst first."""
        at, seen, candidates = len(placed), set(), []
        floor = max((placed[other] for other in self.above[at]), default=-1)
        for gpu in self.free:
            kind = self.twin[gpu]
            if gpu in placed or kind in seen:
                continue
            seen.add(kind)
            if gpu < floor:
                continue
            used = [self.links[gpu][placed[other]] for other in self.before[at]]
            if all(link >= self.width for link in used):
                candidates.append((value + sum(used), gpu))
        candidates.sort(key=lambda pair: (pair[0], -pair[1]))
        return candidates

    def _dive(self) -> None:
        """Depth first with a stack of its own: patterns may have more ranks than frames."""
        placed: list[int] = []
        levels = [self._candidates(placed, 0)]
        while levels and self.steps < STEPS:
            if not levels[-1]:
                levels.pop()
                if placed:
                    placed.pop()
                continue
            value, gpu = levels[-1].pop()
            self.steps += 1
            at = len(placed) + 1
            if value + self.most[self.open[at]] <= self.best_sum:
                continue
            placed.append(gpu)
            if at < self.k:
                levels.append(self._candidates(placed, value))
                continue
            self.best, self.best_sum = tuple(placed), value
            placed.pop()
            if self.first_only or value >= self.most[self.open[0]]:
                return

    def by_rank(self) -> tuple[int, ...]:
        """The best matching in rank order."""
        assert self.best is not None
        at = dict(zip(self.ranks, self.best, strict=True))
        return tuple(at[rank] for rank in range(self.k))


def best_match(weights: Ints, edges: Edges, k: int, free: int) -> Match:
    """The best matching of a connected graph of k ranks on the free GPUs (at least k).

    `weights` in MB/s, shape (n, n).
    """
    if k == 1:
        return Match((gpus_of(free)[0],), 0, 0, proven=True)
    gpus = gpus_of(free)
    proven = True
    for width in widths(weights[np.ix_(gpus, gpus)]):
        search = _Search(weights, edges, k, free)
        complete = search.run(width, first_only=True)
        if search.best is None:
            proven = proven and complete
            continue
        proven = search.run(width, first_only=False) and proven
        order = search.by_rank()
        weakest = min(int(weights[order[a], order[b]]) for a, b in edges)
        return Match(order, weakest, search.best_sum, proven=proven)
    # Not reached: the narrowest width allows every link.
    raise AssertionError(f"{k} ranks on {len(gpus)} GPUs {mask_of(gpus):x}: no matching at all")
