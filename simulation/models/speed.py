"""How long a job runs where it was placed, and beside whom: the execution-time models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gres_topology import NodeTopology
from policies.contract.bits import mask_of
from simulation.core.jobs import SimJob
from simulation.core.link_quality import share_of
from simulation.errors import SimulationError


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A job that runs on one of the same nodes, and its GPUs everywhere."""

    job: SimJob
    gpus: Mapping[str, tuple[int, ...]]


class Speed:
    """An execution-time model; this one takes what the trace says, wherever the job runs."""

    #: Whether who runs beside a job matters.
    has_neighbours = False

    def full_s(
        self,
        job: SimJob,
        gpus: Mapping[str, tuple[int, ...]],
        nodes: Mapping[str, NodeTopology],
        neighbours: Sequence[Neighbour],
    ) -> float:
        """Seconds the whole job would take if conditions stayed as they are."""
        return job.duration_s

    def ideal_s(self, job: SimJob) -> float:
        """Seconds in its best configuration: best GPUs, alone."""
        return job.duration_s


@dataclass(frozen=True, slots=True)
class ByBandwidth(Speed):
    """Amdahl's law with one share of communication `c` for all jobs; not from a paper.

    duration * ((1 - c) + c / share), where share is the effective bandwidth over that of the best
    set of the size on an empty node, of the worst node. The stated duration is that on the best
    GPUs. Single GPUs do not communicate; nodes of over 16 GPUs count as ideal.
    """

    communication: float

    def __post_init__(self) -> None:
        if not 0 <= self.communication <= 1:
            raise SimulationError(f"communication {self.communication}; expected 0 to 1")

    def full_s(
        self,
        job: SimJob,
        gpus: Mapping[str, tuple[int, ...]],
        nodes: Mapping[str, NodeTopology],
        neighbours: Sequence[Neighbour],
    ) -> float:
        """The stated duration, stretched."""
        share = min(share_of(nodes[name], mask_of(order)) for name, order in gpus.items())
        return job.duration_s * (1 - self.communication + self.communication / max(share, 0.01))
