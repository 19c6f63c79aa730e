"""One judge for every policy: what a GPU set is worth, whatever order or reason it came with.

A set's score is that of its best ring, by effective bandwidth (MAPA eq. 2 where it holds)
and, separately, by its weakest link.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from gres_topology import NodeTopology
from gres_topology.links import is_direct
from policies.contract.bits import mask_of, subsets
from policies.scoring.tables import tables
from simulation.errors import SimulationError
from simulation.record import Record


@dataclass(frozen=True, slots=True)
class Verdict:
    """`share` of the ideal on an empty node in [0, 1]; GB/s.

    `pcie_hop`: even the set's widest ring crosses the host somewhere.
    """

    gpus: int
    effbw_gbps: float
    weakest_gbps: float
    share: float
    pcie_hop: bool


def host_mbps(topology: NodeTopology) -> int:
    """The widest path through the host between two GPUs in MB/s, 0 if there is none."""
    n = topology.gpus
    return max(
        (
            round(1000 * float(topology.bandwidth_gbps[i, j]))
            for i in range(n)
            for j in range(i)
            if not is_direct(topology.kinds[i][j])
        ),
        default=0,
    )


def judge(topology: NodeTopology, gpus: Iterable[int]) -> Verdict:
    """The verdict on one node's GPUs of one job. One GPU has no ring: share 1, no hop."""
    mask = mask_of(gpus)
    k = mask.bit_count()
    if not k or mask >> topology.gpus:
        raise SimulationError(f"{topology.name}: no such GPU set: mask {mask:x}")
    if k == 1:
        return Verdict(1, 0.0, 0.0, 1.0, False)
    table = tables.of(topology, "ring").sets(k)
    row = int((subsets(topology.gpus, k) == mask).argmax())
    ideal, effbw = table.ideal_effbw_gbps, float(table.effbw[row])
    weakest = int(table.weakest[row])
    return Verdict(
        gpus=k,
        effbw_gbps=effbw,
        weakest_gbps=weakest / 1000,
        share=effbw / ideal if ideal > 0 else 1.0,
        pcie_hop=weakest <= host_mbps(topology),
    )


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in numbers. `share` and `pcie_hops` are over jobs of two GPUs or more."""

    share: float
    share_all_jobs: float
    pcie_hops: float
    effbw_gbps: float
    makespan_s: float


def summarise(records: list[Record], cluster: Mapping[str, NodeTopology]) -> Summary:
    """Means over a run's placements, one verdict per job and node."""
    verdicts = [
        judge(cluster[name], gpus)
        for record in records
        for name, gpus in record.placement.gpus.items()
    ]
    rings = [verdict for verdict in verdicts if verdict.gpus > 1]
    if not rings:
        raise SimulationError("nothing to judge: no job has two GPUs or more on one node")
    return Summary(
        share=fmean(verdict.share for verdict in rings),
        share_all_jobs=fmean(verdict.share for verdict in verdicts),
        pcie_hops=fmean(verdict.pcie_hop for verdict in rings),
        effbw_gbps=fmean(verdict.effbw_gbps for verdict in rings),
        makespan_s=max(record.end_s for record in records),
    )
