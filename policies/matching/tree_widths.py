"""The widest narrowest link of a balanced tree on every set of GPUs at once, by bit masks.

For each width: which GPUs can be the root of a tree on a set whose links are all that wide? The
answer is a mask of 16 bits, and four widths share one number of 64, so a cut of a set costs one
operation where `tree_solver`, which also knows sums, needs one for each root.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.contract.bits import Ints, members, subsets
from policies.matching.solvers import NARROWEST, MatchingSolver
from policies.matching.symmetry import symmetry
from policies.matching.tree_solver import BLOCK, TreeSolver, balanced_split, by_halves, spread

Words = NDArray[Any]

#: Bits of one width, and how many widths share a number.
_BITS, _SHARED = 16, 4
#: Above the narrowest; machines of more different links are left to the other solver.
MOST_WIDTHS = 2 * _SHARED


def _different_widths(weights: Ints) -> Ints:
    """The links' bandwidths (MB/s), narrowest first."""
    widths: Ints = np.unique(weights[np.triu_indices(len(weights), 1)])
    return widths


def fits_masks(weights: Ints) -> bool:
    """Whether a machine's links are of few enough widths, none of them forbidden."""
    widths = _different_widths(weights)
    return len(widths) <= MOST_WIDTHS + 1 and bool((widths >= 0).all())


class TreeWidths(MatchingSolver):
    """Balanced trees' narrowest links, for links of at most `MOST_WIDTHS` + 1 widths."""

    def __init__(self, weights: Ints) -> None:
        super().__init__(weights, NARROWEST)
        self._weights = weights
        self._widths = _different_widths(weights)
        wider = self._widths[1:]  # every set has a tree of the narrowest links
        self._passes = [
            _Pass(weights, wider[at : at + _SHARED]) for at in range(0, len(wider), _SHARED)
        ]

    def sums(self, k: int) -> Ints:
        """The best value of every row of `subsets(n, k)`, MB/s."""
        masks = subsets(self._n, k)
        level = np.zeros(len(masks), dtype=np.int64)
        for number, one in enumerate(self._passes):
            roots = one.roots(k)[masks]
            for at in range(one.widths):
                is_wide = (roots >> (_BITS * at)) & ((1 << _BITS) - 1) != 0
                level[is_wide] = number * _SHARED + at + 1
        widest: Ints = self._widths[level] if len(self._widths) else level
        return widest

    def order(self, mask: int) -> tuple[int, ...]:
        """The GPUs of a best matching in rank order."""
        return TreeSolver(self._weights, NARROWEST).order(mask)

    def size_bytes(self) -> int:
        """Memory of what has been computed so far."""
        return sum(one.size_bytes() for one in self._passes)


class _Pass:
    """Up to four widths side by side; tables are by mask, shape (2**gpus,)."""

    def __init__(self, weights: Ints, widths: Ints) -> None:
        self._n, self.widths = len(weights), len(widths)
        self._word = next(
            np.dtype(f"u{size}") for size in (2, 4, 8) if size * 8 >= _BITS * len(widths)
        )
        self._symmetry = symmetry(weights)
        shifts = np.arange(self.widths, dtype=np.uint64) * np.uint64(_BITS)
        gpus = np.arange(self._n, dtype=np.uint64)
        one = (np.uint64(1) << shifts).sum(dtype=np.uint64)
        #: For each GPU: a bit at each width where a GPU stands.
        self._bit = (one << gpus).astype(self._word)
        joined = weights[None] >= widths[:, None, None]
        joined[:, np.arange(self._n), np.arange(self._n)] = False
        #: For each width and GPU: those it is linked to that widely.
        near = (joined.astype(np.uint64) << gpus).sum(axis=2, dtype=np.uint64) << shifts[:, None]
        self._near = near.astype(self._word)
        self._roots: dict[int, Words] = {}
        self._tops: dict[int, Words] = {}

    def _empty(self) -> Words:
        return np.zeros(1 << self._n, dtype=self._word)

    def roots(self, size: int) -> Words:
        """The GPUs of each set of that size that can be its root."""
        if size not in self._roots:
            left, right = balanced_split(size)
            roots = self._with_right_part(right)
            if left:
                roots = self._with_left_part(size, left, roots)
            self._roots[size] = roots
        return self._roots[size]

    def _hung(self, size: int) -> Words:
        """The GPUs that each set can hang from: those linked to one of its roots."""
        if size not in self._tops:
            masks = subsets(self._n, size)
            roots = self.roots(size)[masks]
            tops = np.zeros_like(roots)
            for gpu in range(self._n):
                for at in range(self.widths):
                    is_root = (roots >> (_BITS * at + gpu)) & 1
                    tops |= is_root * self._near[at, gpu]
            table = self._empty()
            table[masks] = tops
            self._tops[size] = table
        return self._tops[size]

    def _with_right_part(self, right: int) -> Words:
        """Each GPU of a set that is linked to a root of the rest."""
        masks, roots = subsets(self._n, right + 1), self._empty()
        for gpu in range(self._n):
            own = masks[(masks >> gpu) & 1 == 1]
            below = self._hung(right)[own ^ (1 << gpu)] if right else self._bit[gpu]
            roots[own] |= below & self._bit[gpu]
        return roots

    def _with_left_part(self, size: int, left: int, rest: Words) -> Words:
        """Roots by any cut of each set into a left part and a root with its right part."""
        every, values = subsets(self._n, size), self._empty()
        canon = self._symmetry.canon[every]
        first = canon == every  # one set of those that a symmetry swaps
        values[every[first]] = self._cut(every[first], members(self._n, size)[first], left, rest)
        if not first.all():
            roots, renamed = values[canon], np.zeros(len(every), dtype=self._word)
            columns = self._symmetry.renamings[self._symmetry.via[every]].astype(self._word)
            for gpu in range(self._n):
                for at in range(self.widths):
                    bit = (roots >> (columns[:, gpu] + self._word.type(_BITS * at))) & 1
                    renamed |= bit << self._word.type(_BITS * at + gpu)
            values[every] = renamed
        return values

    def _cut(self, masks: Ints, held: Ints, left: int, rest: Words) -> Words:
        """The roots of some sets (masks, and their GPUs as rows), over all cuts."""
        size, hung = held.shape[1], self._hung(left)
        bits, half = np.left_shift(1, held).astype(np.int32).T.copy(), size // 2
        low, high = spread(bits[:half]), spread(bits[half:])
        cuts = subsets(size, left)
        in_low, in_high = cuts & ((1 << half) - 1), cuts >> half
        roots = np.zeros(len(masks), dtype=self._word)
        if len(masks) >= len(cuts):
            for at_low, at_high in zip(in_low.tolist(), in_high.tolist(), strict=True):
                part = low[at_low] | high[at_high]
                roots |= hung.take(part) & rest.take(masks ^ part)
            return roots
        for at in range(0, len(masks), BLOCK):  # few sets of many cuts: some sets at a time
            some = slice(at, at + BLOCK)
            part = low[in_low, some] | high[in_high, some]
            roots[some] = by_halves(np.bitwise_or, hung.take(part) & rest.take(masks[some] ^ part))
        return roots

    def size_bytes(self) -> int:
        """Memory of what has been computed so far."""
        return sum(kept.nbytes for known in (self._roots, self._tops) for kept in [*known.values()])
