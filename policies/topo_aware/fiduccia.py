"""Cutting a set of GPUs in two where they are least close: Fiduccia-Mattheyses (DAC 1982).

For dual recursive bipartitioning (SC17, algorithm 2). A cut costs its closeness over the product
of the halves' sizes (the ratio cut), so that sockets are cut apart whatever GPUs they have free.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from policies.contract.bits import Ints

#: Cuts kept, some 1 KB each.
REMEMBERED = 20_000
#: GPUs whose farthest others are tried as a start.
MOST_SEEDS = 16
Halves = tuple[tuple[int, ...], tuple[int, ...]]


def _pass(closeness: Ints, is_right: list[bool]) -> tuple[list[bool], int, int]:
    """Move every vertex once, best gain first; the best moment, its cut and product of sizes."""
    n = len(is_right)
    right = np.array(is_right)
    other = right[:, None] != right[None, :]
    gain = (np.where(other, closeness, -closeness)).sum(axis=1)
    cut = int(np.where(other, closeness, 0).sum() // 2)
    free = np.ones(n, dtype=bool)
    size = [n - int(right.sum()), int(right.sum())]
    best, best_cut, best_size = right.copy(), cut, size[0] * size[1]
    for _ in range(n):
        # A half is never emptied: what it holds alone stays locked for this step.
        movable = free & np.where(right, size[1] > 1, size[0] > 1)
        if not movable.any():
            break
        at = int(np.argmax(np.where(movable, gain, np.iinfo(np.int64).min)))
        cut -= int(gain[at])
        same = right == right[at]
        gain += np.where(same, 2 * closeness[at], -2 * closeness[at])
        gain[at] = -int(gain[at])
        size[int(right[at])] -= 1
        right[at] = not right[at]
        size[int(right[at])] += 1
        free[at] = False
        if cut * best_size < best_cut * size[0] * size[1]:
            best, best_cut, best_size = right.copy(), cut, size[0] * size[1]
    return best.tolist(), best_cut, best_size


def _starts(inside: Ints) -> list[list[bool]]:
    """First cuts: in the middle by index, and some GPUs against those farthest from them."""
    n = len(inside)
    starts = [[place >= n // 2 for place in range(n)]]
    for seed in range(0, n, max(1, n // MOST_SEEDS)):
        far = inside[seed] == inside[seed].max()
        if 0 < int(far.sum()) < n:
            starts.append(far.tolist())
    return starts


def bipartition(distance: Ints, gpus: tuple[int, ...]) -> Halves:
    """Two halves of `gpus` (ascending, two or more); the first holds the lowest GPU.

    `distance` is over all GPUs of the node. Passes are repeated from each start until none
    improves; the best cut found is taken, the first of equals, so equal sets are cut alike.
    """
    inside = distance[:, gpus][gpus, :]
    # Sets that are as far apart are cut once.
    sides = _sides(inside.tobytes(), len(gpus))
    first = tuple(g for g, side in zip(gpus, sides, strict=True) if side == sides[0])
    second = tuple(g for g, side in zip(gpus, sides, strict=True) if side != sides[0])
    return first, second


@lru_cache(REMEMBERED)
def _sides(distances: bytes, n: int) -> tuple[bool, ...]:
    """The half of each of n GPUs; `distances` are rows of int64."""
    inside = np.frombuffer(distances, dtype=np.int64).reshape(n, n)
    closeness = inside.max() + 1 - inside
    np.fill_diagonal(closeness, 0)
    best, best_cut, best_size = [False], -1, 1
    for right in _starts(inside):
        cut, size = -1, 1
        while True:
            right, new_cut, new_size = _pass(closeness, right)
            if cut >= 0 and new_cut * size >= cut * new_size:
                break
            cut, size = new_cut, new_size
        if best_cut < 0 or cut * best_size < best_cut * size:
            best, best_cut, best_size = right, cut, size
    return tuple(best)
