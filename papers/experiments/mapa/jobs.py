"""The job file of section 4 and how long a job takes on the GPUs it got."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from gres_topology import NodeTopology
from papers.experiments.mapa.reconstruction import (
    CURVES,
    JOBS,
    NETWORKS,
    SATURATED_GBPS,
    SIZES,
    NeuralNet,
)
from policies.scoring.tables import tables
from simulation.core.jobs import SimJob
from simulation.core.link_quality import judge
from simulation.errors import SimulationError
from simulation.models.speed import Nodes, PlacedJob, Speed

_BY_NAME = {network.name: network for network in NETWORKS}


def effbw_gbps(topology: NodeTopology, gpus: Sequence[int]) -> float | None:
    """Predicted effective bandwidth of a job's GPUs (GB/s); None for one GPU, which has none."""
    return judge(topology, gpus).effbw_gbps if len(gpus) > 1 else None


def network_of(job: SimJob) -> NeuralNet:
    """The network a job trains: its name is the trace's own, `vgg-16/17`."""
    name = job.name.partition("/")[0]
    if name not in _BY_NAME:
        raise SimulationError(
            f"job {job.job_id} is named {job.name!r}; expected {'|'.join(_BY_NAME)}/NUMBER"
        )
    return _BY_NAME[name]


def job_file(seed: int, count: int = JOBS) -> list[SimJob]:
    """Section 4: networks and GPUs per job uniform, all submitted at 0.

    The stated duration is the network's on saturating links; only sensitive jobs say so.
    """
    draw = random.Random(seed)
    jobs = []
    for number in range(1, count + 1):
        network, gpus = draw.choice(NETWORKS), draw.randint(*SIZES)
        hint = f"pattern=ring,sensitive={'yes' if network.is_sensitive else 'no'}"
        name = f"{network.name}/{number}"
        jobs.append(SimJob(number, (gpus,), network.best_s, hint=hint, name=name))
    return jobs


def seconds(
    network: NeuralNet,
    gbps: float | None,
    factor: float = 1.0,
    saturated_gbps: float = SATURATED_GBPS,
) -> float:
    """A job's time at an effective bandwidth (None: one GPU, which does not communicate).

    `factor` multiplies the network's communication share; bandwidth beyond `saturated_gbps`
    gains nothing.
    """
    if gbps is None:
        return network.best_s
    share = min(1.0, network.communication * factor)
    stretch = saturated_gbps / min(max(gbps, 0.1), saturated_gbps)
    return network.best_s * (1 - share + share * stretch)


@dataclass(frozen=True, slots=True)
class ByEffBw(Speed):
    """The reconstruction as an execution-time model; `curve` names a row of CURVES.

    `is_ideal`: every job runs as on the best GPUs of the empty node, wherever it is put.
    """

    topology: NodeTopology
    curve: str = "figure-2b"
    is_ideal: bool = False
    saturated_gbps: float = SATURATED_GBPS

    def full_s(self, placed: PlacedJob, nodes: Nodes, beside: Sequence[PlacedJob]) -> float:
        """Seconds on those GPUs of the one node."""
        if self.is_ideal:
            return self.ideal_s(placed.job)
        ((name, chosen),) = placed.gpus.items()
        return self._seconds(placed.job, effbw_gbps(nodes[name], chosen))

    def ideal_s(self, job: SimJob) -> float:
        """Seconds on the best GPUs of the empty node."""
        return self._seconds(job, self.best_gbps(job.gpus_per_node[0]))

    def _seconds(self, job: SimJob, gbps: float | None) -> float:
        return seconds(network_of(job), gbps, CURVES[self.curve], self.saturated_gbps)

    def best_gbps(self, gpus: int) -> float | None:
        """The best effective bandwidth of that many GPUs on the empty node, GB/s."""
        return tables.ideal_effbw_gbps(self.topology, "ring", gpus) if gpus > 1 else None
