"""Symmetries of a pattern: of the matchings that differ by one, only the first is tried.

Rank by rank, a rank has the lowest GPU of all ranks that a symmetry could swap it with while the
ranks before it stay where they are (a stabiliser chain).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from policies.matching.symmetry import renamings

Edges = tuple[tuple[int, int], ...]

#: Patterns with more symmetries than this are searched as if they had none.
_MOST_SYMMETRIES = 1_000


@lru_cache(maxsize=256)
def first_of_each(k: int, edges: Edges, ranks: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Pairs (a, b): rank a's GPU must have the lower id; the chain follows `ranks`."""
    adjacent = np.zeros((k, k), dtype=np.int64)
    for a, b in edges:
        adjacent[a, b] = adjacent[b, a] = 1
    group = []
    for renaming, complete in renamings(adjacent):
        group.append(renaming)
        if not complete or len(group) > _MOST_SYMMETRIES:
            return ()
    pairs = []
    for rank in ranks:
        pairs += [(rank, other) for other in sorted({g[rank] for g in group} - {rank})]
        group = [g for g in group if g[rank] == rank]
    return tuple(pairs)
