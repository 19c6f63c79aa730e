"""Jobs to replay: what was asked, when, and for how long it runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from policies.order.durations import KnownJob
from simulation.errors import SimulationError


@dataclass(frozen=True, slots=True)
class SimJob:
    """One job of a workload."""

    job_id: int
    #: One count per node wanted.
    gpus_per_node: tuple[int, ...]
    #: As stated: what it took, or takes at its best.
    duration_s: float
    submit_s: float = 0.0
    #: The user's text after `gpu-topo:`.
    hint: str = ""
    #: What the user asked for, which backfill plans with; None: unknown.
    walltime_s: float | None = None
    user: str = ""
    #: The log's own id where it is no number (17_3 of an array).
    name: str = ""
    #: Of each of its nodes, as the simulator of a slurm.conf knows them; the others go by GPUs.
    cpus: int = 0
    memory_mb: int = 0
    partition: str = ""
    #: Slurm's own, as it was when the job was submitted; the higher goes first.
    priority: int = 0
    #: How long it waited in the log itself, from its submit; None: not known.
    waited_s: float | None = None

    @property
    def called(self) -> str:
        """What its log calls it."""
        return self.name or str(self.job_id)

    @property
    def known(self) -> KnownJob:
        """What is known of it before it starts."""
        return KnownJob(self.user, size=sum(self.gpus_per_node), limit_s=self.walltime_s)


#: GPUs and stated durations (seconds) of the mixed workload: uniform whole numbers.
SIZES, DURATION_S = (1, 5), (60, 600)


def mixed_jobs(seed: int, count: int = 150) -> list[SimJob]:
    """A backlog of single-node jobs, all submitted at 0: MAPA's mix (SC'21, section 4)."""
    draw = random.Random(seed)
    return [
        SimJob(job_id, (draw.randint(*SIZES),), float(draw.randint(*DURATION_S)))
        for job_id in range(1, count + 1)
    ]


def offered_load(
    jobs: Sequence[SimJob],
    gpus: int,
    ideal_s: Callable[[SimJob], float] | None = None,
    stretch: float = 1.0,
) -> float:
    """The share of all GPU time that the jobs ask for from the first submit to the last.

    Each job counts as if it started when it was submitted. `stretch` multiplies the times between
    submits, and `ideal_s` replaces the stated durations.
    """
    submit = np.array([job.submit_s for job in jobs]) * stretch
    runs = np.array([job.duration_s if ideal_s is None else ideal_s(job) for job in jobs])
    width = np.array([sum(job.gpus_per_node) for job in jobs])
    first, last = float(submit.min()), float(submit.max())
    if last <= first:
        return 0.0
    return float((width * np.minimum(runs, last - submit)).sum() / (gpus * (last - first)))


def at_load(
    jobs: Sequence[SimJob], gpus: int, load: float, ideal_s: Callable[[SimJob], float] | None = None
) -> list[SimJob]:
    """The same jobs in the same order, arriving faster or slower so that they offer `load`.

    Every time between submits is multiplied by one factor; durations stay. SimulationError
    where these jobs cannot bring as much or as little.
    """
    low, high = 1e-6, 1e6
    most, least = (offered_load(jobs, gpus, ideal_s, stretch) for stretch in (low, high))
    if not least < load < most:
        raise SimulationError(
            f"these {len(jobs)} jobs on {gpus} GPUs can be made to offer a load from {least:.3g} to"
            f" {most:.3g}, not {load:g}"
        )
    for _ in range(60):
        middle = (low * high) ** 0.5
        if offered_load(jobs, gpus, ideal_s, middle) > load:
            low = middle
        else:
            high = middle
    first = min(job.submit_s for job in jobs)
    return [replace(job, submit_s=(job.submit_s - first) * high) for job in jobs]
