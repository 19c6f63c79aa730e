"""Execution times as the authors measured them: `Profiled`, from their profile.

It has seconds alone, by network, batch size, GPUs and whether these share a socket, and seconds
beside one other job. Where a figure is missing (0 or absent) the paper's nearest statement holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from gres_topology import NodeTopology
from policies.best_fit import domains
from policies.contract.bits import mask_of
from policies.contract.interference import Interference, Kind
from simulation.core.jobs import SimJob
from simulation.core.requests import hint_values
from simulation.errors import SimulationError
from simulation.models.speed import Nodes, PlacedJob, Speed

INTRA, INTER = "intra-socket", "inter-socket"


def kind_of(job: SimJob) -> Kind:
    """What the profile knows the job by."""
    values = hint_values(job.hint)
    batch = int(values.get("batch", "0"))
    return Kind(values.get("profile", ""), batch, sum(job.gpus_per_node))


def _solo(data: Mapping[str, Any], kind: Kind, is_packed: bool) -> float:
    """Seconds alone; the other placement's where this one was not measured."""
    try:
        times = data["solo"][kind.profile][str(kind.batch)]["num_gpus"][str(kind.gpus)]
    except KeyError:
        raise SimulationError(
            f"the profile has no {kind.profile or 'unnamed job'} of batch {kind.batch or 'unknown'}"
            f" on {kind.gpus} GPUs; expected networks, batches and counts that were measured"
        ) from None
    first, second = (INTRA, INTER) if is_packed else (INTER, INTRA)
    return float(times[first] or times[second])


def interference_of(data: Mapping[str, Any], *, with_single_gpus: bool = True) -> Interference:
    """What the authors' JSON says of two jobs beside each other.

    Jobs of two GPUs were measured across the sockets, so their times are compared with those
    alone there. Other pairs' times mix those of both jobs (AlexNet on one GPU beside batch 128
    has batch 128's) and are left out, as are entries of 0. Wherever times of one GPU can be
    compared they show no slowdown: such jobs suffer none, unless `with_single_gpus` is False.
    Then they are unmeasured, and the paper's words on jobs of their batch size hold for them.
    """
    kinds = [
        Kind(network, int(batch), int(gpus))
        for network, batches in data["solo"].items()
        for batch, profile in batches.items()
        for gpus in profile["num_gpus"]
    ]
    measured: dict[tuple[Kind, Kind], float] = {}
    if with_single_gpus:
        single = [kind for kind in kinds if kind.gpus == 1]
        measured = dict.fromkeys(product(single, kinds), 1.0)
    for network, batches in data["collocation"].items():
        for batch, profile in batches.items():
            kind = Kind(network, int(batch), 2)
            rows = profile["num_gpus"].get("2", {})
            for other, others in rows.items():
                for size, counts in others.items():
                    seconds = counts["num_gpus"].get("2", 0)
                    if isinstance(seconds, int | float) and seconds > 0:
                        pair = (kind, Kind(other, int(size), 2))
                        measured[pair] = seconds / _solo(data, kind, False)
    return Interference(measured)


@dataclass(slots=True)
class Profiled(Speed):
    """The execution-time model of the experiments; `data` is the authors' JSON.

    Jobs disturb each other when they have GPUs on the same socket of the same node (figure 2).
    Beside several jobs the worst one counts.
    """

    data: Mapping[str, Any]
    has_neighbours = True
    #: What it is made of; policies that expect just that are of one mind with it.
    interference: Interference = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.interference = interference_of(self.data)

    def full_s(self, placed: PlacedJob, nodes: Nodes, beside: Sequence[PlacedJob]) -> float:
        """Solo time where it is placed, times the worst neighbour's effect."""
        kind = kind_of(placed.job)
        where = {name: self._sockets(nodes[name], order) for name, order in placed.gpus.items()}
        is_packed = len(where) == 1 and len(next(iter(where.values()))) == 1
        factor = 1.0
        for other in beside:
            if any(
                where[name] & self._sockets(nodes[name], order)
                for name, order in other.gpus.items()
                if name in where
            ):
                factor = max(factor, self.factor(kind, kind_of(other.job)))
        return self.solo_s(kind, is_packed) * factor

    def ideal_s(self, job: SimJob) -> float:
        """Alone, on the better of the two placements."""
        kind = kind_of(job)
        return min(self.solo_s(kind, True), self.solo_s(kind, False))

    def solo_s(self, kind: Kind, is_packed: bool) -> float:
        """Seconds alone; SimulationError where the profile does not hold the job."""
        return _solo(self.data, kind, is_packed)

    def factor(self, kind: Kind, other: Kind) -> float:
        """How many times longer a job takes beside another: 1 to `interference.WORST`."""
        return self.interference.factor(kind, other)

    def _sockets(self, topology: NodeTopology, gpus: Sequence[int]) -> set[int]:
        mask = mask_of(gpus)
        return {at for at, dom in enumerate(domains(topology)) if dom & mask}
