"""How long a job runs where it was placed, and beside whom: the execution-time models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gres_topology import NodeTopology
from policies.contract.bits import mask_of
from policies.contract.hint_keys import communication_in
from policies.horizon.communication import run_s
from simulation.core.jobs import SimJob
from simulation.core.link_quality import share_of
from simulation.core.requests import hint_values
from simulation.errors import SimulationError

Nodes = Mapping[str, NodeTopology]


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job and its GPUs on each of its nodes."""

    job: SimJob
    gpus: Mapping[str, tuple[int, ...]]


class Speed:
    """An execution-time model; this one takes what the trace says, wherever the job runs.

    `beside` are the jobs that run on one of the same nodes.
    """

    #: Whether who runs beside a job matters.
    has_neighbours = False

    def full_s(self, placed: PlacedJob, nodes: Nodes, beside: Sequence[PlacedJob]) -> float:
        """Seconds the whole job would take if conditions stayed as they are."""
        return placed.job.duration_s

    def ideal_s(self, job: SimJob) -> float:
        """Seconds in its best configuration: best GPUs, alone."""
        return job.duration_s


class Delayed(Speed):
    """Another model, and `more_s` for each job beside its work: launch and completion."""

    def __init__(self, speed: Speed, more_s: float) -> None:
        self._speed, self._more_s = speed, more_s
        self.has_neighbours = speed.has_neighbours

    def full_s(self, placed: PlacedJob, nodes: Nodes, beside: Sequence[PlacedJob]) -> float:
        """The other model's, and the delay."""
        return self._speed.full_s(placed, nodes, beside) + self._more_s

    def ideal_s(self, job: SimJob) -> float:
        """The other model's, and the delay."""
        return self._speed.ideal_s(job) + self._more_s


@dataclass(frozen=True, slots=True)
class ByBandwidth(Speed):
    """Amdahl's law with one share of communication `c` for all jobs that hint none of their own.

    duration * ((1 - c) + c / share), where share is the effective bandwidth over that of the best
    set of the size on an empty node, of the worst node. The stated duration is that on the best
    GPUs. Single GPUs do not communicate; nodes of over 16 GPUs count as ideal. Not from a paper.
    """

    communication: float

    def __post_init__(self) -> None:
        if not 0 <= self.communication <= 1:
            raise SimulationError(f"communication {self.communication}; expected 0 to 1")

    def full_s(self, placed: PlacedJob, nodes: Nodes, beside: Sequence[PlacedJob]) -> float:
        """The job's duration in seconds on these GPUs: the stated one times its slowdown there."""
        share = min(share_of(nodes[name], mask_of(order)) for name, order in placed.gpus.items())
        said = communication_in(hint_values(placed.job.hint))
        communication = self.communication if said is None else said
        return run_s(placed.job.duration_s, communication, share)
