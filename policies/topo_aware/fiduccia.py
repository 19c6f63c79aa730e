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


def _pass(closeness: list[list[int]], right: list[bool]) -> tuple[list[bool], int, int]:
    """Move every vertex once, best gain first; the best moment, its cut and product of sizes.

    In plain lists: sets are small, and an array's step costs more than one of ten numbers.
    """
    right, vertices = list(right), range(len(right))
    gain = [
        sum(near if right[to] != right[at] else -near for to, near in enumerate(closeness[at]))
        for at in vertices
    ]
    cut = sum(closeness[at][to] for at in vertices for to in range(at) if right[at] != right[to])
    size = [right.count(False), right.count(True)]
    best, best_cut, best_size = list(right), cut, size[0] * size[1]
    left = list(vertices)
    while left:
        # A half is never emptied: what it holds alone stays locked for this step.
        movable = [vertex for vertex in left if size[right[vertex]] > 1]
        if not movable:
            break
        at = max(movable, key=gain.__getitem__)
        side = right[at]
        cut -= gain[at]
        for to, near in enumerate(closeness[at]):
            gain[to] += 2 * near if right[to] == side else -2 * near
        gain[at] = -gain[at]
        size[side] -= 1
        size[not side] += 1
        right[at] = not side
        left.remove(at)
        if cut * best_size < best_cut * size[0] * size[1]:
            best, best_cut, best_size = list(right), cut, size[0] * size[1]
    return best, best_cut, best_size


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
    rows = closeness.tolist()
    best, best_cut, best_size = [False], -1, 1
    for right in _starts(inside):
        cut, size = -1, 1
        while True:
            right, new_cut, new_size = _pass(rows, right)
            if cut >= 0 and new_cut * size >= cut * new_size:
                break
            cut, size = new_cut, new_size
        if best_cut < 0 or cut * best_size < best_cut * size:
            best, best_cut, best_size = right, cut, size
    return tuple(best)
