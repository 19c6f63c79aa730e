"""Equations 2 to 5 as the paper prints them, in a policy that runs here alone.

U = a/t + a/I + a/w: t is 0 for one GPU and w is 0 on a full machine, where U is taken as infinite;
all such sets tie. As 1/I and 1/w are never below 1, U of equal weights is never below 2/3, so no
minimum utility of Table 1 (0.3 and 0.5) postpones anything. I is a mean of solo over collocated
time, so 1/I grows with interference.
"""

from __future__ import annotations

from gres_topology import NodeTopology
from policies.contract.interference import Interference
from policies.topo_aware.drb import Bipartition
from policies.topo_aware.index import State
from policies.topo_aware.settings import TopoAwareSettings
from policies.topo_aware.solutions import Solution, Solutions
from policies.topo_aware.utility import JobNeeds, SetScorer, UtilityTerms


class PrintedScale(SetScorer):
    """Scores sets by eq. 2, the terms of which are not in [0, 1] here."""

    def _terms(self, mask: int) -> UtilityTerms:
        machine, factor, own = self.machine, self._interference.factor, self.asked.kind
        touched = machine.touched(mask)
        near = [job.kind for job in self.beside if machine.touched(job.mask) & touched]
        times = [1 / max((factor(own, kind) for kind in near), default=1.0)]
        times += [1 / factor(kind, own) for kind in near]
        left = self.free & ~mask
        shares = [
            (socket & left).bit_count() / size
            for socket, size in zip(machine.sockets, machine.sizes, strict=True)
        ]
        parts = (
            _over(machine.paths(mask)),
            _over(sum(times) / len(times)),
            _over(sum(shares) / len(shares)),
        )
        return UtilityTerms(round(sum(parts) / len(parts), 9), *parts)


def _over(value: float) -> float:
    return 1 / value if value else float("inf")


class PrintedSolutions(Solutions):
    """What dual recursive bipartitioning finds by eq. 2."""

    def __init__(self, interference: Interference) -> None:
        """With the weights of section 5.2, which are equal."""
        super().__init__(TopoAwareSettings(), interference)

    def solve(self, topology: NodeTopology, state: State, asked: JobNeeds) -> Solution:
        """Bipartition on such a node, from the start."""
        machine = self.machine(topology)
        scale = PrintedScale(
            machine, state.free, state.beside, asked, self.settings, self.interference
        )
        return Bipartition(scale).solve()
