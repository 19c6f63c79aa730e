"""Placements judged by the utility of topo-aware, whoever made them."""

from __future__ import annotations

from collections.abc import Mapping

from gres_topology import NodeTopology
from papers.experiments.sc17.profile import kind_of
from policies.contract.bits import mask_of
from policies.contract.interference import Interference, weight_of
from policies.topo_aware.machine import MachineGraph
from policies.topo_aware.settings import TopoAwareSettings
from policies.topo_aware.utility import Beside, JobNeeds, SetScorer
from simulation.core.record import Record, SimulatedRun
from simulation.core.requests import hint_values


def below_minimum(
    run: SimulatedRun, cluster: Mapping[str, NodeTopology], interference: Interference
) -> int:
    """How many jobs were placed where their utility was below their minimum.

    The utility is that of the moment when the job starts, with the neighbours of that moment.
    """
    machines = {topology.shape: MachineGraph(topology) for topology in cluster.values()}
    running: dict[str, list[Record]] = {name: [] for name in cluster}
    below = 0
    for record in sorted(run.records, key=lambda record: record.start_s):
        worst = 1.0
        for name, gpus in record.placement.gpus.items():
            there = running[name] = [r for r in running[name] if r.end_s > record.start_s]
            beside = tuple(_beside(other, name) for other in there)
            machine = machines[cluster[name].shape]
            own = _beside(record, name)
            free = (1 << cluster[name].gpus) - 1
            for other in beside:
                free &= ~other.mask
            asked = JobNeeds(len(gpus), own.kind, weight_of(own.kind.batch))
            scale = SetScorer(machine, free, beside, asked, TopoAwareSettings(), interference)
            worst = min(worst, scale.terms(own.mask).utility)
            there.append(record)
        below += worst < float(hint_values(record.job.hint).get("min-utility", "0"))
    return below


def _beside(record: Record, name: str) -> Beside:
    return Beside(mask_of(record.placement.gpus[name]), kind_of(record.job))
