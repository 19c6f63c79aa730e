"""Best balanced binary tree on every set of GPUs at once: rank r's parent is rank (r-1)//2.

The sizes of the two subtrees depend on the tree's size alone. So every way is tried to cut a set
into a left part and the rest, which is a root with the right part below it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from policies.contract.bits import Ints, gpus_of, members, rows_of, subsets
from policies.matching.solvers import SUM, Join, MatchingSolver, Small
from policies.matching.symmetry import symmetry

#: Sets whose cuts are computed together: what the processor's cache holds.
BLOCK = 16


@lru_cache(maxsize=64)
def balanced_split(size: int) -> tuple[int, int]:
    """Ranks in the left and right subtree of the balanced tree of `size` ranks."""
    left = right = 0
    for rank in range(1, size):
        top = rank
        while top > 2:
            top = (top - 1) // 2
        left, right = left + (top == 1), right + (top == 2)
    return left, right


def spread(bits: Small) -> Small:
    """The mask for every choice among the rows of `bits`, shape (2**rows, columns)."""
    masks = np.zeros((1 << len(bits), bits.shape[1]), dtype=bits.dtype)
    for at, row in enumerate(bits):
        low = 1 << at
        np.bitwise_or(masks[:low], row, out=masks[low : 2 * low])
    return masks


def by_halves(joined: np.ufunc, cuts: Small) -> Small:
    """Reduced over the first axis, by halves while there are many: faster than `reduce`.

    `cuts` is overwritten.
    """
    while len(cuts) > 32:
        half = (len(cuts) + 1) // 2
        joined(cuts[: len(cuts) - half], cuts[half:], out=cuts[: len(cuts) - half])
        cuts = cuts[:half]
    reduced: Small = joined.reduce(cuts, axis=0)
    return reduced


class TreeSolver(MatchingSolver):
    """Balanced binary trees; every table has one row per set, one column per root."""

    def __init__(self, weights: Ints, joined: Join = SUM) -> None:
        super().__init__(weights, joined)
        self._symmetry = symmetry(weights)
        self._rooted: dict[int, Small] = {}
        self._hung: dict[int, Small] = {}
        self._rest: dict[int, Small] = {}

    def _empty(self, size: int) -> Small:
        shape = (len(subsets(self._n, size)), self._n)
        return np.full(shape, self._compact.forbidden, dtype=self._compact.links.dtype)

    def _rooted_values(self, size: int) -> Small:
        """Best tree on each subset by its root, shape (subsets, n)."""
        if size not in self._rooted:
            left, right = balanced_split(size)
            values = self._with_right_part(right)
            if left:
                values = self._with_left_part(size, left, self._hung_values(left), values)
            self._rooted[size] = values
        return self._rooted[size]

    def _with_right_part(self, right: int) -> Small:
        """Each root with the rest of its set hung below it, shape (subsets, n)."""
        if right not in self._rest:
            self._rest[right] = self._hang_rest(right)
        return self._rest[right]

    def _hang_rest(self, right: int) -> Small:
        values = self._empty(right + 1)
        masks, rows = subsets(self._n, right + 1), rows_of(self._n)
        for root in range(self._n):
            at = np.flatnonzero((masks >> root) & 1)
            if right:
                rest = rows[masks[at] ^ (1 << root)]
                values[at, root] = self._hung_values(right)[rest, root]
            else:
                values[at, root] = self._compact.start
        return values

    def _with_left_part(self, size: int, left: int, hung: Small, rest: Small) -> Small:
        """The best cut of each set into a left part and a root with its right part."""
        every, rows = subsets(self._n, size), rows_of(self._n)
        canon = self._symmetry.canon[every]
        first = np.flatnonzero(canon == every)  # one set of those that a symmetry swaps
        masks, held = every[first], members(self._n, size)[first]
        values: Small = np.full_like(rest, self._compact.forbidden, shape=(len(masks), self._n))
        self._fill_cuts(values, masks, np.left_shift(1, held).T.copy(), left, hung, rest)
        if len(masks) == len(every):
            return values
        at = np.zeros(len(every), dtype=np.int64)
        at[first] = np.arange(len(first))
        columns = self._symmetry.renamings[self._symmetry.via[every]]
        return values[at[rows[canon]][:, None], columns]

    def _fill_cuts(
        self, values: Small, masks: Ints, bits: Ints, left: int, hung: Small, rest: Small
    ) -> None:
        """The best of all cuts of each set; `bits` has the sets as columns."""
        rows, half = rows_of(self._n), len(bits) // 2
        cuts = subsets(len(bits), left)
        low, high = spread(bits[:half]), spread(bits[half:])
        in_low, in_high = cuts & ((1 << half) - 1), cuts >> half
        if len(masks) < len(cuts):  # few sets of many cuts: some sets at a time
            for at in range(0, len(masks), BLOCK):
                some = slice(at, at + BLOCK)
                part = low[in_low, some] | high[in_high, some]
                cut = hung.take(rows.take(part), axis=0)
                self._joined(cut, rest.take(rows.take(masks[some] ^ part), axis=0), out=cut)
                values[some] = np.maximum(by_halves(np.maximum, cut), self._compact.forbidden)
            return
        for at_low, at_high in zip(in_low.tolist(), in_high.tolist(), strict=True):
            part = low[at_low] | high[at_high]
            cut = hung.take(rows.take(part), axis=0)
            self._joined(cut, rest.take(rows.take(masks ^ part), axis=0), out=cut)
            np.maximum(values, cut, out=values)

    def _hung_values(self, size: int) -> Small:
        """Best tree on each subset hung below each GPU outside it, shape (subsets, n)."""
        if size not in self._hung:
            rooted, links = self._rooted_values(size), self._compact.links
            masks, by_root = subsets(self._n, size), rooted.T.copy()
            hung = np.full_like(by_root, self._compact.forbidden)
            for top in range(self._n):
                best = self._joined(by_root, links[:, top : top + 1]).max(axis=0)
                outside = (masks >> top) & 1 == 0
                np.maximum(hung[top], best, out=hung[top], where=outside)
            hung = hung.T.copy()
            self._hung[size] = hung
        return self._hung[size]

    def sums(self, k: int) -> Ints:
        """The best value of every row of `subsets(n, k)`, MB/s."""
        return self._compact.mbps(self._rooted_values(k).max(axis=1))

    def order(self, mask: int) -> tuple[int, ...]:
        """The GPUs of the best tree in rank order, so the root comes first."""
        # Only the parts' tables are needed, not the one of the set's own size.
        ranks: dict[int, int] = {}
        self._place(0, int(self._by_root(mask).argmax()), mask, ranks)
        return tuple(ranks[rank] for rank in range(len(ranks)))

    def _by_root(self, mask: int) -> Small:
        """The best tree on one set by its root, shape (n,); forbidden for GPUs outside it."""
        size = mask.bit_count()
        left, right = balanced_split(size)
        rest = self._with_right_part(right)
        every = np.array([mask])
        if not left:
            return np.asarray(rest[rows_of(self._n)[mask]])
        values: Small = np.full((1, self._n), self._compact.forbidden, dtype=rest.dtype)
        bits = np.left_shift(1, np.array(gpus_of(mask)))[:, None]
        self._fill_cuts(values, every, bits, left, self._hung_values(left), rest)
        only: Small = values[0]
        return only

    def _cuts(self, root: int, mask: int) -> tuple[Ints, Small]:
        """Every left part of a set with that root, and what the cut is worth."""
        rest = mask ^ (1 << root)
        left, right = balanced_split(mask.bit_count())
        if not left:
            return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        rows = rows_of(self._n)
        held = gpus_of(rest)
        lefts = spread(np.left_shift(1, np.array(held))[:, None])[subsets(len(held), left), 0]
        values = self._hung_values(left)[rows[lefts], root]
        if right:
            values = self._joined(values, self._hung_values(right)[rows[rest ^ lefts], root])
        return lefts, values

    def _place(self, rank: int, root: int, mask: int, ranks: dict[int, int]) -> None:
        ranks[rank] = root
        rest = mask ^ (1 << root)
        lefts, values = self._cuts(root, mask)
        first = int(lefts[int(values.argmax())])
        for child, part in ((2 * rank + 1, first), (2 * rank + 2, rest ^ first)):
            if part:
                rooted = self._rooted_values(part.bit_count())[rows_of(self._n)[part]]
                below = self._joined(rooted, self._compact.links[root])
                self._place(child, int(below.argmax()), part, ranks)

    def size_bytes(self) -> int:
        """Memory of what has been computed so far."""
        return sum(
            v.nbytes for known in (self._rooted, self._hung, self._rest) for v in [*known.values()]
        )
