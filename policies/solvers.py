"""Best matching of a pattern on every set of GPUs at once, exactly (at most 16 GPUs).

"Best" is the largest sum of the links used (AggBW, MAPA eq. 1); a link of weight
FORBIDDEN makes a matching impossible. Paths and rings: dynamic programming over masks
(Held and Karp), so 16 GPUs cost 16 * 16 * 2**16 additions, not 15! orders. Trees: the
two subtrees of a balanced tree depend on its size alone, so a set is cut in two.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

import numpy as np

from policies.bits import Ints, gpus_of, members, subsets
from policies.links import FORBIDDEN

#: Rows of work arrays handled at a time by the tree solver (bounds its memory to ~50 MB).
_CHUNK = 1 << 12


class Solver(Protocol):
    """Answers for one matrix of links, shape (n, n)."""

    def sums(self, k: int) -> Ints:
        """The best matching's sum for every row of `subsets(n, k)`."""
        ...

    def order(self) -> tuple[int, ...]:
        """Rank order of a best matching on all n GPUs; the lexicographically first."""
        ...


class PathSolver:
    """Chains and rings."""

    def __init__(self, weights: Ints, *, closed: bool) -> None:
        n = len(weights)
        self._weights, self._closed, self._done = weights, closed, 1
        # _best[mask, j]: best path over mask that ends in j; a ring starts at its lowest GPU.
        self._best = np.full((1 << n, n), FORBIDDEN, dtype=np.int64)
        for gpu in range(n):
            self._best[1 << gpu, gpu] = 0

    def _grow(self, k: int) -> None:
        n = len(self._weights)
        for size in range(self._done + 1, k + 1):
            masks = subsets(n, size)
            for last in range(n):
                ends = masks[(masks >> last) & 1 == 1]
                if self._closed:
                    ends = ends[ends & ((1 << last) - 1) != 0]
                before = self._best[ends ^ (1 << last)] + self._weights[:, last]
                self._best[ends, last] = np.maximum(before.max(axis=1), FORBIDDEN)
        self._done = max(self._done, k)

    def _ends(self, k: int) -> Ints:
        """What a matching ending in each GPU is worth, shape (subsets, n)."""
        self._grow(k)
        n = len(self._weights)
        ends = self._best[subsets(n, k)]
        if self._closed and k > 2:
            ends = ends + self._weights[members(n, k)[:, 0]]
        return ends

    def sums(self, k: int) -> Ints:
        """See Solver."""
        sums: Ints = self._ends(k).max(axis=1)
        return sums

    def order(self) -> tuple[int, ...]:
        """See Solver; a path is read from the end where it was left off."""
        n = len(self._weights)
        mask = (1 << n) - 1
        last = int(np.argmax(self._ends(n)[0]))
        path = [last]
        while mask != 1 << last:
            rest = mask ^ (1 << last)
            before = self._best[rest] + self._weights[:, last]
            mask, last = rest, int(np.argmax(before))
            path.append(last)
        return tuple([path[-1], *path[:-1]] if self._closed else path)


class StarSolver:
    """One centre, rank 0."""

    def __init__(self, weights: Ints) -> None:
        self._weights = weights

    def _by_centre(self, k: int) -> Ints:
        rows = members(len(self._weights), k)
        values: Ints = self._weights[rows[:, :, None], rows[:, None, :]].sum(axis=2)
        return values

    def sums(self, k: int) -> Ints:
        """See Solver."""
        sums: Ints = self._by_centre(k).max(axis=1)
        return sums

    def order(self) -> tuple[int, ...]:
        """See Solver: the centre, then the others ascending."""
        n = len(self._weights)
        centre = int(np.argmax(self._by_centre(n)[0]))
        return (centre, *(gpu for gpu in range(n) if gpu != centre))


class AllToAllSolver:
    """Every link inside the set."""

    def __init__(self, weights: Ints) -> None:
        self._weights = weights

    def sums(self, k: int) -> Ints:
        """See Solver."""
        rows = members(len(self._weights), k)
        inside: Ints = self._weights[rows[:, :, None], rows[:, None, :]].sum(axis=(1, 2)) // 2
        return inside

    def order(self) -> tuple[int, ...]:
        """See Solver: ascending, since every order is the same."""
        return tuple(range(len(self._weights)))


@lru_cache(maxsize=64)
def _split(size: int) -> tuple[int, int]:
    """Ranks in the left and right subtree of the balanced tree of `size` ranks."""
    left = right = 0
    for rank in range(1, size):
        top = rank
        while top > 2:
            top = (top - 1) // 2
        left, right = left + (top == 1), right + (top == 2)
    return left, right


class TreeSolver:
    """Balanced binary trees: rank r's parent is rank (r-1)//2."""

    def __init__(self, weights: Ints) -> None:
        n = len(weights)
        self._weights = weights
        self._rows: dict[int, Ints] = {}
        for size in range(1, n + 1):
            self._rows[size] = np.zeros(1 << n, dtype=np.int32)
            self._rows[size][subsets(n, size)] = np.arange(len(subsets(n, size)))
        self._rooted: dict[int, Ints] = {}
        self._hung: dict[int, Ints] = {}

    def _root_values(self, size: int) -> Ints:
        """Best tree on each subset by its root, shape (subsets, n)."""
        if size not in self._rooted:
            n = len(self._weights)
            masks, rows = subsets(n, size), members(n, size)
            values = np.full((len(masks), n), FORBIDDEN, dtype=np.int64)
            for root in range(n):
                picked = np.flatnonzero((masks >> root) & 1)
                for start in range(0, len(picked), _CHUNK):
                    some = picked[start : start + _CHUNK]
                    rest = rows[some][rows[some] != root].reshape(len(some), size - 1)
                    cuts = self._cut_values(rest, root)
                    values[some, root] = np.maximum(cuts.max(axis=1), FORBIDDEN)
            self._rooted[size] = values
        return self._rooted[size]

    def _hung_values(self, size: int) -> Ints:
        """Best tree on each subset hung below each GPU outside it, shape (subsets, n)."""
        if size not in self._hung:
            rooted = self._root_values(size)
            below = [(rooted + self._weights[:, top]).max(axis=1) for top in range(len(rooted[0]))]
            self._hung[size] = np.stack(below, axis=1)
        return self._hung[size]

    def _left_masks(self, rest: Ints) -> Ints:
        """Every way to cut the GPUs of each row in two: left masks, shape (rows, cuts)."""
        if not rest.shape[1]:
            return np.zeros((len(rest), 1), dtype=np.int64)
        left, _ = _split(rest.shape[1] + 1)
        parts: Ints = (np.int64(1) << rest)[:, members(rest.shape[1], left)].sum(axis=2)
        return parts

    def _cut_values(self, rest: Ints, root: int) -> Ints:
        """What each cut is worth with both parts hung below `root`, shape (rows, cuts)."""
        left, right = _split(rest.shape[1] + 1)
        lefts = self._left_masks(rest)
        rights = (np.int64(1) << rest).sum(axis=1)[:, None] ^ lefts
        total = np.zeros(lefts.shape, dtype=np.int64)
        if left:
            total += self._hung_values(left)[self._rows[left][lefts], root]
        if right:
            total += self._hung_values(right)[self._rows[right][rights], root]
        return total

    def sums(self, k: int) -> Ints:
        """See Solver."""
        sums: Ints = self._root_values(k).max(axis=1)
        return sums

    def order(self) -> tuple[int, ...]:
        """See Solver: rank order, so the root comes first."""
        n = len(self._weights)
        ranks: dict[int, int] = {}
        self._place(0, int(np.argmax(self._root_values(n)[0])), (1 << n) - 1, ranks)
        return tuple(ranks[rank] for rank in range(n))

    def _place(self, rank: int, root: int, mask: int, ranks: dict[int, int]) -> None:
        ranks[rank] = root
        rest = np.array([gpus_of(mask ^ (1 << root))], dtype=np.int64)
        cut = int(np.argmax(self._cut_values(rest, root)[0]))
        left = int(self._left_masks(rest)[0, cut])
        parts = (left, mask ^ (1 << root) ^ left)
        for child, part in zip((2 * rank + 1, 2 * rank + 2), parts, strict=True):
            if part:
                rooted = self._root_values(part.bit_count())
                row = self._rows[part.bit_count()][part]
                below = int(np.argmax(rooted[row] + self._weights[:, root]))
                self._place(child, below, part, ranks)


def solver_for(pattern: str, weights: Ints) -> Solver:
    """The solver of a pattern for one matrix of links (MB/s, shape (n, n), n <= 16)."""
    if pattern in ("ring", "chain"):
        return PathSolver(weights, closed=pattern == "ring")
    if pattern == "tree":
        return TreeSolver(weights)
    return StarSolver(weights) if pattern == "star" else AllToAllSolver(weights)
