"""Where a job goes among nodes of equal rank, so that switches and blocks stay whole for others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from policies.contract.bits import Ints, positions

#: Places of one lowest domain (a set), and how many of them a job is to have.
Share = tuple[int, int]


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

    def begun(self, places: int, whole: int) -> int:
        """Those in no lowest domain, else those in the one with the fewest `whole` nodes.

        Of equal domains the first. Whichever node of these is taken, other domains stay whole.
        """
        if not self._of:
            return places
        at = self._at(places)
        domains = self._of[0][at]
        counts = np.bincount(self._of[0][self._at(whole)], minlength=int(domains.max()) + 1)
        around = np.where(domains > 0, counts[domains], -1)
        return _as_set(at[domains == domains[around == around.min()].min()])

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

    @cached_property
    def joined(self) -> int:
        """The places that a lowest domain has."""
        return _as_set(np.flatnonzero(self._of[0])) if self._of else 0

    @cached_property
    def _labels(self) -> list[Ints]:
        """For each level which domain has each place: where it has none, that of the level below.

        Above the highest level all places are one.
        """
        labels: list[Ints] = []
        for level, domain_of in enumerate(self._of):
            named = domain_of + (level << 32)
            labels.append(np.where(domain_of > 0, named, labels[-1] if labels else 0))
        return [*labels, np.zeros(self._size, dtype=np.int64)]

    def counts(self, places: int) -> tuple[int, ...] | None:
        """How many domains of each level these places are in; None where one is in none."""
        if places & ~self.joined:
            return None
        at = self._at(places)
        return tuple(len(np.unique(labels[at])) for labels in self._labels)

    def shares(self, places: int) -> list[Share]:
        """The places by lowest domain, and how many they are."""
        return [(_as_set(at), len(at)) for at in self._by_label(0, self._at(places & self.joined))]

    def fewest(self, places: int, count: int, unit: int, most: Sequence[int]) -> list[Share] | None:
        """Lowest domains for `count` nodes of a job, each with whole `unit`s of nodes.

        In no more domains of any level than `most` (as `counts` gives them), and in the smallest
        hole that suffices, so that larger ones stay whole; None where none is found.
        """
        top = next(level for level, number in enumerate(most) if number == 1)
        around = self._by_label(top, self._at(places & self.joined))
        holes = [(room, at) for at in around if (room := self._room(at, unit)) >= count]
        for _, at in sorted(holes, key=lambda hole: hole[0]):
            shares = list(self._fill(top, at, count, unit))
            touched = self.counts(_union(share for share, _ in shares))
            if touched is not None and all(a <= b for a, b in zip(touched, most, strict=True)):
                return shares
        return None

    def _by_label(self, level: int, at: Ints) -> list[Ints]:
        """The places of each domain of a level, in the order of the domains."""
        labels = self._labels[level][at]
        order = np.argsort(labels, kind="stable")
        return np.split(at[order], np.flatnonzero(np.diff(labels[order])) + 1) if len(at) else []

    def _room(self, at: Ints, unit: int) -> int:
        """How many nodes there are in whole units of one lowest domain."""
        _, rooms = np.unique(self._labels[0][at], return_counts=True)
        return int((rooms // unit * unit).sum())

    def _fill(self, level: int, at: Ints, count: int, unit: int) -> Iterator[Share]:
        """`count` nodes of these places, all of one domain of `level`, on few domains below it."""
        if level == 0:
            yield _as_set(at), count
            return
        below = [(self._room(some, unit), some) for some in self._by_label(level - 1, at)]
        while count:
            enough = [one for one in below if one[0] >= count]
            rank = min if enough else max
            found = rank(range(len(below)), key=lambda i: _rank(below[i][0], count, bool(enough)))
            room, some = below.pop(found)
            yield from self._fill(level - 1, some, min(room, count), unit)
            count -= min(room, count)


def _rank(room: int, count: int, must_suffice: bool) -> tuple[bool, int]:
    """The smallest room that suffices, where it must; else the largest."""
    return (must_suffice and room < count, room)


def _as_set(at: Ints) -> int:
    bits = np.zeros(int(at[-1]) + 1 if len(at) else 0, dtype=np.uint8)
    bits[at] = 1
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def _union(sets: Iterable[int]) -> int:
    union = 0
    for one in sets:
        union |= one
    return union
