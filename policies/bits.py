"""GPU sets as bit masks (bit i = GPU i), and the subsets of a node in a fixed order."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


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


@lru_cache(maxsize=256)
def members(n: int, k: int) -> Ints:
    """All k-subsets of n GPUs, shape (subsets, k), in lexicographic order."""
    rows = np.array(list(combinations(range(n), k)), dtype=np.int64).reshape(-1, k)
    rows.flags.writeable = False
    return rows


@lru_cache(maxsize=256)
def subsets(n: int, k: int) -> Ints:
    """The masks of `members(n, k)`, in the same order; the first is the lowest ids."""
    masks: Ints = (np.int64(1) << members(n, k)).sum(axis=1, dtype=np.int64)
    masks.flags.writeable = False
    return masks
