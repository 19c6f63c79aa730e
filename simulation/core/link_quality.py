"""One judge for every policy: what a GPU set is worth, by its best ring.

Its worth is the effective bandwidth (MAPA eq. 2 where it holds) and, separately, the weakest link.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from gres_topology import NodeTopology
from policies.contract.bits import mask_of, subsets
from policies.matching.links import host_mbps
from policies.scoring.tables import tables
from simulation.errors import SimulationError


@dataclass(frozen=True, slots=True)
class SetWorth:
    """What one GPU set of a node is worth."""

    gpus: int
    effbw_gbps: float
    weakest_gbps: float
    #: Effective bandwidth over that of the best set of the size on the empty node, [0, 1].
    share: float
    #: Whether even the set's widest ring crosses the host somewhere.
    pcie_hop: bool


def judge(topology: NodeTopology, gpus: Iterable[int]) -> SetWorth:
    """The verdict on one node's GPUs of one job. One GPU has no ring: share 1, no hop."""
    return _verdict(topology, mask_of(gpus))


@cache
def _verdict(topology: NodeTopology, mask: int) -> SetWorth:
    k = mask.bit_count()
    if not k or mask >> topology.gpus:
        raise SimulationError(f"{topology.name}: no such GPU set: mask {mask:x}")
    if k == 1:
        return SetWorth(1, 0.0, 0.0, 1.0, False)
    table = tables.of(topology, "ring").sets(k)
    row = int((subsets(topology.gpus, k) == mask).argmax())
    ideal, effbw = table.ideal_effbw_gbps, float(table.effbw[row])
    weakest = int(table.weakest[row])
    return SetWorth(
        gpus=k,
        effbw_gbps=effbw,
        weakest_gbps=weakest / 1000,
        share=effbw / ideal if ideal > 0 else 1.0,
        pcie_hop=weakest <= host_mbps(topology),
    )


def share_of(topology: NodeTopology, mask: int) -> float:
    """A GPU set's effective bandwidth as a share of the best set of its size."""
    if mask.bit_count() < 2 or topology.gpus > 16:
        return 1.0
    return _verdict(topology, mask).share
