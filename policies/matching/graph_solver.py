"""Best matching of any graph on every set of GPUs at once, for nodes of up to 8 GPUs.

All orders that differ by more than a symmetry of the pattern are scored: at most 20,160.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import permutations

import numpy as np

from policies.contract.bits import Ints, gpus_of, members
from policies.matching.pattern_symmetry import Edges, first_of_each
from policies.matching.solvers import SUM, Join, MatchingSolver, Small

#: Largest node for which all orders are tried.
MOST_GPUS = 8


@lru_cache(maxsize=32)
def _orders(k: int, edges: Edges) -> Ints:
    """The orders to try, shape (orders, k): order[rank] is an index into the set."""
    orders = np.array(list(permutations(range(k))), dtype=np.int64)
    for low, high in first_of_each(k, edges, tuple(range(k))):
        orders = orders[orders[:, low] < orders[:, high]]
    return orders


class GraphSolver(MatchingSolver):
    """Any pattern; `edges` gives its edges for k ranks."""

    def __init__(self, weights: Ints, edges: Callable[[int], Edges], joined: Join = SUM) -> None:
        super().__init__(weights, joined)
        self._edges = edges
        self._sums: dict[int, Ints] = {}

    def _values(self, rows: Ints) -> Small:
        """What each order of each set is worth, shape (sets, orders)."""
        k, links = rows.shape[1], self._compact.links
        edges = self._edges(k)
        orders = _orders(k, edges)
        values: Small = np.full((len(rows), len(orders)), self._compact.start, dtype=links.dtype)
        local = links[rows[:, :, None], rows[:, None, :]].reshape(len(rows), -1)
        for a, b in edges:
            self._joined(values, local.take(orders[:, a] * k + orders[:, b], axis=1), out=values)
            np.maximum(values, self._compact.forbidden, out=values)
        return values

    def sums(self, k: int) -> Ints:
        """The best value of every row of `subsets(n, k)`, MB/s."""
        if k not in self._sums:
            values = self._values(members(self._n, k)).max(axis=1)
            self._sums[k] = self._compact.mbps(values)
        return self._sums[k]

    def order(self, mask: int) -> tuple[int, ...]:
        """The GPUs of the best matching in rank order, the lexicographically first of equals."""
        gpus = gpus_of(mask)
        k = len(gpus)
        at = int(self._values(np.array([gpus]))[0].argmax())
        return tuple(gpus[i] for i in _orders(k, self._edges(k))[at])

    def size_bytes(self) -> int:
        """Memory of what has been computed so far."""
        return sum(known.nbytes for known in [*self._sums.values()])
