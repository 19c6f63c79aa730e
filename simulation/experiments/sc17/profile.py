"""Execution times as the authors measured them: `Profiled`, from their profile.

Solo: seconds by network, batch size, GPUs and whether the GPUs share a socket. Beside
others: seconds beside one other job. Where a figure is missing (0 or absent) the nearest
statement of the paper holds; each choice is written where it is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gres_topology import NodeTopology
from policies.best_fit import domains
from policies.bits import mask_of
from simulation.asking import hint_values
from simulation.errors import SimulationError
from simulation.speed import Neighbour
from simulation.workload import SimJob

#: Section 3.3: "up to about 30 %". The profile has ratios of 2 and more for pairs whose runs
#: were plainly of unlike length (AlexNet 1 beside AlexNet 128: 417 s against 159 s alone).
WORST = 1.30
#: Jobs of unmeasured pairs. Section 3.3 has 30 % (batch 1 beside batch 1) and 24 % (beside 128)
#: for two GPUs; "very small or nonexistent" for large batches. By the sufferer's batch size.
DEFAULT = {1: 1.24, 4: 1.21, 64: 1.0, 128: 1.0}

INTRA, INTER = "intra-socket", "inter-socket"


@dataclass(frozen=True, slots=True)
class _Kind:
    """What the profile knows a job by."""

    network: str
    batch: str
    gpus: int


def _kind(job: SimJob) -> _Kind:
    values = hint_values(job.hint)
    return _Kind(values.get("profile", ""), values.get("batch", ""), sum(job.gpus_per_node))


@dataclass(slots=True)
class Profiled:
    """The execution-time model of the experiments; `data` is the authors' JSON.

    Jobs disturb each other when they have GPUs on the same socket of the same node: packed
    jobs on different sockets share no bus (figure 2). Beside several jobs the worst holds.
    """

    data: Mapping[str, Any]
    has_neighbours: bool = True
    _domains: dict[str, list[int]] = field(default_factory=dict, repr=False)
    _factors: dict[tuple[_Kind, _Kind], float] = field(default_factory=dict, repr=False)

    def full_s(
        self,
        job: SimJob,
        gpus: Mapping[str, tuple[int, ...]],
        nodes: Mapping[str, NodeTopology],
        neighbours: Sequence[Neighbour],
    ) -> float:
        """Solo time where it is placed, times the worst neighbour's effect."""
        kind = _kind(job)
        where = {name: self._sockets(nodes[name], order) for name, order in gpus.items()}
        is_packed = len(where) == 1 and len(next(iter(where.values()))) == 1
        factor = 1.0
        for other in neighbours:
            if any(
                where[name] & self._sockets(nodes[name], order)
                for name, order in other.gpus.items()
                if name in where
            ):
                factor = max(factor, self.factor(kind, _kind(other.job)))
        return self.solo_s(kind, is_packed) * factor

    def ideal_s(self, job: SimJob) -> float:
        """Alone, on the better of the two placements."""
        kind = _kind(job)
        return min(self.solo_s(kind, True), self.solo_s(kind, False))

    def solo_s(self, kind: _Kind, is_packed: bool) -> float:
        """Seconds alone; the other placement's where this one was not measured."""
        try:
            found = self.data["solo"][kind.network][kind.batch]["num_gpus"][str(kind.gpus)]
        except KeyError:
            raise SimulationError(
                f"the profile has no {kind.network} of batch {kind.batch} on {kind.gpus} GPUs;"
                " expected networks, batches and counts that were measured"
            ) from None
        first, second = (INTRA, INTER) if is_packed else (INTER, INTRA)
        return float(found[first] or found[second])

    def factor(self, kind: _Kind, other: _Kind) -> float:
        """How many times longer a job takes beside another: 1 to `WORST`.

        Pairs of two GPUs were measured across the sockets: their seconds equal the solo
        ones there, not the packed ones, so that is what they are compared with. Other
        pairs' seconds are a mixture of the two jobs' (AlexNet on one GPU "beside" batch
        128 takes batch 128's time): those of one GPU show no slowdown wherever the times
        are comparable, so one GPU suffers none; three GPUs fall under `DEFAULT`.
        """
        pair = (kind, other)
        if pair not in self._factors:
            self._factors[pair] = self._read_factor(kind, other)
        return self._factors[pair]

    def _read_factor(self, kind: _Kind, other: _Kind) -> float:
        if kind.gpus == 1:
            return 1.0
        rows: Any = self.data["collocation"]
        steps = (kind.network, kind.batch, "num_gpus", str(kind.gpus), other.network, other.batch,
                 "num_gpus", str(other.gpus))  # fmt: skip
        for step in steps:
            rows = rows.get(step, {}) if isinstance(rows, dict) else {}
        if kind.gpus == 2 and isinstance(rows, int | float) and rows > 0:
            return min(WORST, max(1.0, rows / self.solo_s(kind, False)))
        return DEFAULT[int(kind.batch)]

    def _sockets(self, topology: NodeTopology, gpus: Sequence[int]) -> set[int]:
        if topology.shape not in self._domains:
            self._domains[topology.shape] = domains(topology)
        mask = mask_of(gpus)
        return {at for at, dom in enumerate(self._domains[topology.shape]) if dom & mask}
