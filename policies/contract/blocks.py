"""Where a job goes among nodes of equal rank, so that switches and blocks stay whole for others."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from policies.contract.bits import Ints, positions


class Blocks:
    """The domains of a network, by level: which place hangs on which.

    `domains` are (level, places), the lowest level first; places are numbers below `size`. Of two
    domains of one level that have a place the first counts.
    """

    def __init__(self, domains: Iterable[tuple[int, int]], size: int) -> None:
        self._size = size
        #: For each level the domain of each place, by its number among those of the level, from
        #: 1; 0 for a place in none.
        self._of: list[Ints] = []
        #: The places of each leaf, in the order of their numbers.
        self._leaves: list[int] = []
        counts: list[int] = []
        for level, places in domains:
            while len(self._of) <= level:
                self._of.append(np.zeros(size, dtype=np.int64))
                counts.append(0)
            counts[level] += 1
            if level == 0:
                self._leaves.append(places)
            at = self._at(places)
            free = at[self._of[level][at] == 0]
            self._of[level][free] = counts[level]

    def _at(self, places: int) -> Ints:
        """The places of a set, ascending."""
        return positions(places, self._size)

    def leaf_of(self, taken: list[int]) -> int:
        """The places of the one leaf that all of these are on; none where they are on several."""
        leaves = {int(self._of[0][place]) for place in taken} if self._of else {0}
        leaf = leaves.pop()
        return 0 if leaves or not leaf else self._leaves[leaf - 1]

    def one(self, places: int, whole: int) -> int:
        """The place for a job of one node: in no domain, else where fewest nodes are `whole`.

        Level by level from the leaves up; the first place where the levels leave several.
        """
        at, wholes = self._at(places), self._at(whole)
        for domain_of in self._of:
            domains = domain_of[at]
            around = np.bincount(domain_of[wholes], minlength=int(domains.max()) + 1)[domains]
            # What nothing of this level joins has no more whole nodes around it than before.
            around[domains == 0] = -1
            at = at[around == around.min()]
            if len(at) == 1:
                break
        return int(at[0])

    def several(self, places: int, count: int) -> list[int]:
        """Places for up to `count` nodes of one job, on few leaves.

        All on the leaf with the least room that suffices; where none does, all there are on that
        with the most, and so on with the rest. Places on no leaf come last.
        """
        at = self._at(places)
        if not self._of:
            return list(map(int, at[:count]))
        leaves = self._of[0][at]
        room = np.bincount(leaves)
        room[0] = 0
        chosen: list[int] = []
        while (left := count - len(chosen)) and room.any():
            enough = room >= left
            leaf = (
                np.where(enough, room, self._size + 1).argmin() if enough.any() else room.argmax()
            )
            chosen += map(int, at[leaves == leaf][:left])
            room[leaf] = 0
        return [*chosen, *map(int, at[leaves == 0][: count - len(chosen)])]
