"""The solver of each pattern: what a node's sets are worth is computed once and shared.

A solver of a node of 16 GPUs takes up to 8 MB; `KEPT` of them are kept, or many of smaller nodes.
"""

from __future__ import annotations

from policies.contract.bits import Ints
from policies.matching.graph_solver import GraphSolver
from policies.matching.kept import Kept
from policies.matching.links import at_least
from policies.matching.solvers import (
    NARROWEST,
    SUM,
    AllToAllSolver,
    Join,
    MatchingSolver,
    PathSolver,
    StarSolver,
)
from policies.matching.tree_solver import TreeSolver
from policies.matching.tree_widths import TreeWidths, fits_masks
from policies.patterns.pattern import pattern_of

#: Solvers kept of nodes of 16 GPUs, over all nodes and patterns.
KEPT = 8


def solver_for(pattern: str, weights: Ints, joined: Join = SUM) -> MatchingSolver:
    """The solver of a pattern for one matrix of links (MB/s, shape (n, n), n <= 16)."""
    if pattern in ("ring", "chain"):
        return PathSolver(weights, closed=pattern == "ring", joined=joined)
    if pattern == "tree" and joined is NARROWEST and fits_masks(weights):
        return TreeWidths(weights)
    if pattern == "tree":
        return TreeSolver(weights, joined)
    if pattern == "star":
        return StarSolver(weights, joined)
    if pattern == "all-to-all":
        return AllToAllSolver(weights, joined)
    return GraphSolver(weights, pattern_of(pattern).edges, joined)


def _narrowest(weights: Ints) -> int:
    n = len(weights)
    if n < 2:
        return 0
    # The diagonal is left out by reading the rows one off.
    return int(weights.ravel()[1:].reshape(n - 1, n + 1)[:, :-1].min())


class Solved:
    """Solvers by (links, pattern, what is maximised, narrowest link allowed)."""

    def __init__(self) -> None:
        self._kept: Kept[MatchingSolver] = Kept(KEPT)

    def sums(self, pattern: str, weights: Ints, narrowest: int = 0) -> MatchingSolver:
        """Largest sums of links, none narrower than `narrowest` (MB/s)."""
        if narrowest <= _narrowest(weights):
            narrowest = 0  # allows every link: the same solver as without a limit
        return self._get(pattern, weights, SUM, narrowest)

    def widest(self, pattern: str, weights: Ints) -> MatchingSolver:
        """A solver for the sets whose narrowest link is the widest."""
        return self._get(pattern, weights, NARROWEST, 0)

    def _get(self, pattern: str, weights: Ints, joined: Join, narrowest: int) -> MatchingSolver:
        def made() -> MatchingSolver:
            links = at_least(weights, narrowest) if narrowest else weights
            return solver_for(pattern, links, joined)

        key = (weights.tobytes(), pattern, joined is SUM, narrowest)
        return self._kept.get(key, len(weights), made)

    def size_bytes(self) -> int:
        """Memory of the solvers kept."""
        return sum(solver.size_bytes() for solver in self._kept.values())

    def clear(self) -> None:
        """Forget all solvers."""
        self._kept.clear()


#: The solvers of this process.
solved = Solved()
