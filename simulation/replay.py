"""The simplest use of the simulator: stated durations, first in, first out, one policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gres_topology import NodeTopology
from policies import Policy
from simulation.engine import Postponing, Simulator
from simulation.record import Record
from simulation.workload import SimJob

#: Postponements after which a job takes what there is.
MAX_POSTPONED = Postponing().max_postponements

__all__ = ["MAX_POSTPONED", "Record", "replay"]


def replay(
    jobs: Iterable[SimJob],
    cluster: Mapping[str, NodeTopology],
    policy: Policy,
    seed: int | None = None,
) -> list[Record]:
    """Run every job once, first in first out; records in the order of their starts.

    `cluster` is node name -> topology; all GPUs free at first. `seed` is only written into
    the records. SimulationError for a job that could never start.
    """
    return Simulator(cluster, policy, seed=seed).run(jobs).records
