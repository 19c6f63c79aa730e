"""Best matching of a pattern on every set of GPUs at once, exactly (at most 16 GPUs).

"Best" is the largest sum of the links used (AggBW, MAPA eq. 1) or, with `joined=NARROWEST`,
the widest narrowest link. A link of weight FORBIDDEN may not be used. Paths and rings are solved
by dynamic programming over sets (Held and Karp; a ring starts at its lowest GPU).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.contract.bits import Ints, gpus_of, members, rows_of, subsets
from policies.matching.links import FORBIDDEN

#: Joins two links of one matching: their sum, or the narrower one.
Join = Callable[..., Any]
SUM: Join = np.add
NARROWEST: Join = np.minimum

#: Small integers of one of the two widths below.
Small = NDArray[Any]


class Compact:
    """Links in the smallest integers that hold them; `forbidden`, the least value, means no link.

    Sums count in the links' greatest common divisor, narrowest links in ordinals of the
    different bandwidths.
    """

    def __init__(self, weights: Ints, joined: Join) -> None:
        known = weights > FORBIDDEN // 2
        allowed = np.where(known, weights, 0)
        codes = allowed
        self._levels: Ints | None = None
        if joined is NARROWEST:
            self._levels, codes = np.unique(allowed, return_inverse=True)
            codes = codes.reshape(weights.shape)
            bits = 8 if len(self._levels) < 1 << 7 else 16
            self.forbidden, self.start = -1, (1 << (bits - 1)) - 1
        else:
            self._unit = max(1, int(np.gcd.reduce(allowed, axis=None)))
            codes = allowed // self._unit
            # The largest sum is that of all links of a complete graph.
            most = int(codes.max(initial=0)) * math.comb(len(weights), 2)
            bits = 16 if most < 1 << 13 else 32 if most < 1 << 29 else 64
            self.forbidden, self.start = -(1 << (bits - 2)), 0
        self.links: Small = np.where(known, codes, self.forbidden).astype(f"int{bits}")

    def mbps(self, values: Small) -> Ints:
        """Values back in MB/s; FORBIDDEN where there is no matching."""
        wide = values.astype(np.int64)
        if self._levels is None:
            known = wide * self._unit
        else:
            known = self._levels[np.clip(wide, 0, len(self._levels) - 1)]
        allowed: Ints = np.where(wide < 0, FORBIDDEN, known)
        return allowed


class MatchingSolver(ABC):
    """Answers for one matrix of links, shape (n, n).

    Several threads may ask at once. They may compute the same twice; what one can see of another's
    work is complete.
    """

    def __init__(self, weights: Ints, joined: Join = SUM) -> None:
        self._n, self._joined, self._compact = len(weights), joined, Compact(weights, joined)

    @abstractmethod
    def sums(self, k: int) -> Ints:
        """The best value of every row of `subsets(n, k)`, MB/s; FORBIDDEN if there is none."""

    @abstractmethod
    def order(self, mask: int) -> tuple[int, ...]:
        """The GPUs of a best matching on a set, in rank order."""

    @abstractmethod
    def size_bytes(self) -> int:
        """Memory of what has been computed so far."""


@lru_cache(maxsize=64)
def _steps(n: int, size: int, *, closed: bool) -> tuple[tuple[Ints, Ints], ...]:
    """For each GPU: rows of the sets of `size` that may end there, and their rows without it."""
    masks, rows = subsets(n, size), rows_of(n)
    steps = []
    for gpu in range(n):
        ends = (masks >> gpu) & 1 == 1
        if closed:
            ends &= masks & ((1 << gpu) - 1) != 0
        at = np.flatnonzero(ends)
        steps.append((at, rows[masks[at] ^ (1 << gpu)].astype(np.int64)))
    return tuple(steps)


class PathSolver(MatchingSolver):
    """Best matches of chains and rings."""

    def __init__(self, weights: Ints, *, closed: bool, joined: Join = SUM) -> None:
        super().__init__(weights, joined)
        self._closed, n = closed, self._n
        one: Small = np.full((n, n), self._compact.forbidden, dtype=self._compact.links.dtype)
        np.fill_diagonal(one, self._compact.start)
        # _best[size][end, row]: best path over that set; a ring starts at its lowest GPU.
        self._best: dict[int, Small] = {1: one}

    def _grow(self, k: int) -> None:
        links, forbidden = self._compact.links, self._compact.forbidden
        for size in range(2, k + 1):
            if size in self._best:
                continue
            before = self._best[size - 1]
            shape = (self._n, len(subsets(self._n, size)))
            best: Small = np.full(shape, forbidden, dtype=links.dtype)
            for end, (at, rest) in enumerate(_steps(self._n, size, closed=self._closed)):
                if len(at):
                    reached = self._joined(before, links[:, end : end + 1]).max(axis=0)
                    best[end, at] = np.maximum(reached[rest], forbidden)
            self._best[size] = best

    def _ends(self, k: int) -> Small:
        """What a matching ending in each GPU is worth, shape (n, subsets)."""
        self._grow(k)
        ends = self._best[k]
        if self._closed and k > 2:
            closing = self._compact.links[:, members(self._n, k)[:, 0]]
            ends = self._joined(ends, closing)
        return ends

    def sums(self, k: int) -> Ints:
        """The best value of every row of `subsets(n, k)`, MB/s."""
        return self._compact.mbps(self._ends(k).max(axis=0))

    def order(self, mask: int) -> tuple[int, ...]:
        """The GPUs of a best matching in rank order; a path is read from its last GPU backwards."""
        size, rows = mask.bit_count(), rows_of(self._n)
        self._grow(size)
        links = self._compact.links
        ends = self._best[size][:, rows[mask]]
        if self._closed and size > 2:
            ends = self._joined(ends, links[:, (mask & -mask).bit_length() - 1])
        path = [int(ends.argmax())]
        for left in range(size - 1, 0, -1):
            last = path[-1]
            mask ^= 1 << last
            before = self._best[left][:, rows[mask]]
            path.append(int(self._joined(before, links[:, last]).argmax()))
        return tuple([path[-1], *path[:-1]] if self._closed else path)

    def size_bytes(self) -> int:
        """Memory of what has been computed so far."""
        return sum(best.nbytes for best in [*self._best.values()])


class StarSolver(MatchingSolver):
    """Best matches of stars, whose centre is rank 0."""

    def __init__(self, weights: Ints, joined: Join = SUM) -> None:
        super().__init__(weights, joined)
        n, links = self._n, self._compact.links
        # _to[centre, mask]: the links from a GPU to all others of the mask.
        self._to: Small = np.full((n, 1 << n), self._compact.start, dtype=links.dtype)
        for gpu in range(n):
            bit = 1 << gpu
            link = links[:, gpu : gpu + 1].copy()
            link[gpu] = self._compact.start
            reached = self._joined(self._to[:, :bit], link)
            self._to[:, bit : 2 * bit] = np.maximum(reached, self._compact.forbidden)

    def _by_centre(self, masks: Ints) -> Small:
        centres = (masks >> np.arange(self._n)[:, None]) & 1 == 1
        return np.where(centres, self._to[:, masks], self._compact.forbidden)

    def sums(self, k: int) -> Ints:
        """The best value of every row of `subsets(n, k)`, MB/s."""
        return self._compact.mbps(self._by_centre(subsets(self._n, k)).max(axis=0))

    def order(self, mask: int) -> tuple[int, ...]:
        """The centre of the best star, then the others ascending."""
        centre = int(self._by_centre(np.array([mask]))[:, 0].argmax())
        return (centre, *(gpu for gpu in gpus_of(mask) if gpu != centre))

    def size_bytes(self) -> int:
        """Memory of what has been computed so far."""
        return self._to.nbytes


class AllToAllSolver(MatchingSolver):
    """Every link inside the set."""

    def __init__(self, weights: Ints, joined: Join = SUM) -> None:
        super().__init__(weights, joined)
        links, start = self._compact.links, self._compact.start
        self._inside: Small = np.full(1 << self._n, start, dtype=links.dtype)
        for gpu in range(self._n):
            bit = 1 << gpu
            to = np.full(bit, start, dtype=links.dtype)
            for other in range(gpu):
                low = 1 << other
                reached = joined(to[:low], links[gpu, other])
                to[low : 2 * low] = np.maximum(reached, self._compact.forbidden)
            both = joined(self._inside[:bit], to)
            self._inside[bit : 2 * bit] = np.maximum(both, self._compact.forbidden)

    def sums(self, k: int) -> Ints:
        """The best value of every row of `subsets(n, k)`, MB/s."""
        return self._compact.mbps(self._inside[subsets(self._n, k)])

    def order(self, mask: int) -> tuple[int, ...]:
        """Ascending, since every order is the same."""
        return gpus_of(mask)

    def size_bytes(self) -> int:
        """Memory of what has been computed so far."""
        return self._inside.nbytes
