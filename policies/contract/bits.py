"""GPU sets as bit masks (bit i = GPU i), and the subsets of a node in a fixed order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, product
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def gpus_of(mask: int) -> tuple[int, ...]:
    """The GPUs of a mask, ascending."""
    gpus = []
    while mask:
        low = mask & -mask
        gpus.append(low.bit_length() - 1)
        mask ^= low
    return tuple(gpus)


def mask_of(gpus: Iterable[int]) -> int:
    """The mask of some GPUs."""
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu
    return mask


def lowest_bits(mask: int, count: int) -> int:
    """The `count` lowest bits of `mask`; fewer where it has fewer."""
    taken = 0
    while mask and count:
        bit = mask & -mask
        taken, mask, count = taken | bit, mask ^ bit, count - 1
    return taken


#: Masks of which it is remembered what they are like; of so many all are forgotten.
MOST_KNOWN = 20_000


class Runs:
    """Runs of neighbouring GPUs that can take each other's place (`NodeTopology.runs`).

    With `boards` (of runs among these) whole ones can, too.
    """

    def __init__(self, masks: Iterable[int], boards: Iterable[tuple[int, ...]] = ()) -> None:
        runs = [run for run in masks if run & (run - 1)]
        self._known: dict[int, int] = {}
        self._several = mask_of(gpu for run in runs for gpu in gpus_of(run))
        grouped = list(boards)
        known = {run for board in grouped for run in board}
        grouped += [(run,) for run in runs if run not in known]
        self._groups = [
            [(run, (run & -run).bit_length() - 1) for run in sorted(group)] for group in grouped
        ]

    def least(self, free: int) -> int:
        """One mask for all that are like this one: as many GPUs of each run, from its first on."""
        least = self._known.get(free)
        if least is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            least = self._known[free] = self._least(free)
        return least

    def _least(self, free: int) -> int:
        least = free & ~self._several
        for group in self._groups:
            counts = [(free & run).bit_count() for run, _ in group]
            if len(counts) > 1:
                counts.sort(reverse=True)
            least |= _from_first(group, counts)
        return least

    def each_least(self, gpus: int, most: int) -> Iterator[int]:
        """All that `least` gives for a node of so many GPUs; nothing where they are over `most`."""
        alone = gpus_of(((1 << gpus) - 1) & ~self._several)
        sizes = [group[0][0].bit_count() for group in self._groups]
        ways = [
            comb(size + len(group), size) for size, group in zip(sizes, self._groups, strict=True)
        ]
        if prod(ways) << len(alone) > most:
            return
        of_groups = [
            [
                _from_first(group, counts)
                for counts in combinations_with_replacement(range(size, -1, -1), len(group))
            ]
            for size, group in zip(sizes, self._groups, strict=True)
        ]
        for masks in product(*of_groups, *((0, 1 << gpu) for gpu in alone)):
            yield sum(masks)

    def __bool__(self) -> bool:
        """Whether there is any run of more than one GPU."""
        return bool(self._groups)


def _from_first(group: Sequence[tuple[int, int]], counts: Iterable[int]) -> int:
    """So many GPUs of each run of a group (its mask, its first GPU), from its first on."""
    mask = 0
    for count, (_, first) in zip(counts, group, strict=True):
        mask |= ((1 << count) - 1) << first
    return mask


def moved(mask: int, was: int, now: int) -> int:
    """Of `now` the GPUs that `mask` has of `was`, counted from the lowest."""
    if was == now:
        return mask
    pairs = zip(gpus_of(was), gpus_of(now), strict=True)
    return mask_of(to for gpu, to in pairs if mask >> gpu & 1)


def positions(mask: int, size: int) -> Ints:
    """The set bits of a large mask, which are below `size`, ascending, as an array."""
    raw = np.frombuffer(mask.to_bytes(size // 8 + 1, "little"), dtype=np.uint8)
    found: Ints = np.unpackbits(raw, bitorder="little").view(np.bool_).nonzero()[0]
    return found


#: Largest node whose sets are all listed, and tabulated.
EXACT_GPUS = 16


@lru_cache(maxsize=EXACT_GPUS + 1)
def _by_size(n: int) -> tuple[Ints, ...]:
    """The masks of n GPUs by how many GPUs they hold, each lexicographic by ids."""
    masks, sizes = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int8)
    # GPU 0 is decided last and first with "taken": that is the order of ascending ids.
    for gpu in reversed(range(n)):
        masks = np.concatenate([masks | (1 << gpu), masks])
        sizes = np.concatenate([sizes + 1, sizes])
    ranked = masks[np.argsort(sizes, kind="stable")]
    ends = np.cumsum(np.bincount(sizes, minlength=n + 1))
    layers = tuple(np.split(ranked, ends[:-1]))
    for layer in layers:
        layer.flags.writeable = False
    return layers


@lru_cache(maxsize=256)
def members(n: int, k: int) -> Ints:
    """All k-subsets of n GPUs, shape (subsets, k), in lexicographic order."""
    if n > EXACT_GPUS:
        rows = np.array(list(combinations(range(n), k)), dtype=np.int64).reshape(-1, k)
    else:
        two_bytes = subsets(n, k).astype("<u2").view(np.uint8).reshape(-1, 2)
        held = np.unpackbits(two_bytes, axis=1, count=n, bitorder="little").view(np.bool_)
        rows = np.nonzero(held)[1].reshape(len(held), k)
    rows.flags.writeable = False
    return rows


@lru_cache(maxsize=256)
def subsets(n: int, k: int) -> Ints:
    """The masks of `members(n, k)`, in the same order; the first is the lowest ids."""
    if n <= EXACT_GPUS:
        return _by_size(n)[k] if k <= n else np.zeros(0, dtype=np.int64)
    masks: Ints = (np.int64(1) << members(n, k)).sum(axis=1, dtype=np.int64)
    masks.flags.writeable = False
    return masks


@lru_cache(maxsize=EXACT_GPUS + 1)
def rows_of(n: int) -> NDArray[np.int32]:
    """The row of every mask within `subsets(n, its size)`, shape (2**n,); n <= 16."""
    rows = np.empty(1 << n, dtype=np.int32)
    for masks in _by_size(n):
        rows[masks] = np.arange(len(masks), dtype=np.int32)
    rows.flags.writeable = False
    return rows


def clear_caches() -> None:
    """Forget every list of subsets, so that a benchmark starts cold."""
    for cached in (_by_size, members, subsets, rows_of):
        cached.cache_clear()
