"""Jobs to replay: what was asked, when, and for how long it runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class SimJob:
    """One job of a workload. `duration_s` is stated: what it took, or takes at its best.

    `gpus_per_node` is one count per node wanted; `hint` the user's text after `gpu-topo:`;
    `walltime_s` what the user asked for (None: unknown), which backfill plans with.
    """

    job_id: int
    gpus_per_node: tuple[int, ...]
    duration_s: float
    submit_s: float = 0.0
    hint: str = ""
    walltime_s: float | None = None
    user: str = ""


#: Stated durations of the mixed workload, seconds: uniform whole numbers.
DURATION_S = (60, 600)


def mixed_jobs(seed: int, count: int = 150, sizes: tuple[int, int] = (1, 5)) -> list[SimJob]:
    """A backlog of single-node jobs, all submitted at 0: MAPA's mix (SC'21, section 4).

    GPUs uniform over `sizes`, durations uniform over `DURATION_S`.
    """
    draw = random.Random(seed)
    return [
        SimJob(job_id, (draw.randint(*sizes),), float(draw.randint(*DURATION_S)))
        for job_id in range(1, count + 1)
    ]


def offered_load(
    jobs: Sequence[SimJob], gpus: int, ideal_s: Callable[[SimJob], float] | None = None
) -> float:
    """GPU-seconds the jobs bring over what the cluster has while they arrive."""
    span = max(job.submit_s for job in jobs) - min(job.submit_s for job in jobs)
    work = sum(
        sum(job.gpus_per_node) * (job.duration_s if ideal_s is None else ideal_s(job))
        for job in jobs
    )
    return work / (gpus * span) if span > 0 else float("inf")


def at_load(
    jobs: Sequence[SimJob],
    gpus: int,
    load: float,
    ideal_s: Callable[[SimJob], float] | None = None,
) -> list[SimJob]:
    """The same jobs in the same order, arriving faster or slower so that they offer `load`.

    Every submit time is scaled by one factor; durations stay.
    """
    factor = offered_load(jobs, gpus, ideal_s) / load
    if factor == float("inf"):
        return list(jobs)
    first = min(job.submit_s for job in jobs)
    return [replace(job, submit_s=(job.submit_s - first) * factor) for job in jobs]
