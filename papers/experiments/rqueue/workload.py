"""A synthetic year of TSUBAME2.5's G queue; its log is not public.

From the paper: 63,484 jobs in a year, 480 nodes of Table II, 1-3 GPUs per node, Table I's ways of
drawing what the log lacks, busy periods of ten days (section IV.B), and 78.02 idle GPUs, to which
the jobs' times are scaled. No figure of the R queue is used. What the paper does not print was
fixed in round numbers before the R queue ran; `YEARS` varies it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers.experiments.rqueue.middleware import PAPER_WIRES
from papers.simulators.queued_loans import QueuedLoanJob
from policies import Request
from policies.remote import NodeCapacity, RemoteJob
from policies.remote.r_queue import JobWork, NetworkSpeeds, execution_s

_Numbers = NDArray[Any]

JOBS, NODES, DAYS, DAY_S = 63_484, 480, 365, 86_400.0
IDLE_GPUS = 78.02
LONGEST_S = 96 * 3600.0
#: Nodes of a job.
SIZES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Year:
    """What the paper does not print."""

    #: Shares of jobs with 1, 2 and 3 GPUs per node.
    gpus: tuple[float, float, float] = (0.1, 0.1, 0.8)
    #: Shares of jobs of each number of nodes in `SIZES`.
    sizes: tuple[float, ...] = (0.40, 0.15, 0.15, 0.13, 0.09, 0.05, 0.03)
    #: A busy or quiet period lasts so many days; its number of jobs is lognormal with this sigma.
    busy_days: int = 10
    busy_sigma: float = 0.3
    #: Times are lognormal, scaled to the idle GPUs or to the mean where one is given.
    times_sigma: float = 1.5
    execution_mean_s: float | None = None
    #: The most CPUs and memory of a task.
    cpus: int = 4
    memory_gb: float = 11.0


PRINTED = Year()
#: `implied` uses the G queue's mean execution time (15,148 s) as it follows from decreases that the
#: paper prints in seconds and in percent.
YEARS = {
    "printed": PRINTED,
    "implied": Year((0.105, 0.142, 0.753), busy_days=1, busy_sigma=0.6, execution_mean_s=15_148.0),
    "single-days": replace(PRINTED, busy_days=1),
    "busier": replace(PRINTED, busy_sigma=0.5),
    "more-cpus": replace(PRINTED, cpus=8, memory_gb=22.0),
    "fewer-idle": replace(PRINTED, gpus=(0.08, 0.08, 0.84)),
    "saturated": replace(PRINTED, gpus=(0.06, 0.06, 0.88)),
    "small-jobs": replace(PRINTED, sizes=(0.40, 0.20, 0.20, 0.12, 0.08, 0.0, 0.0)),
}


def nodes(count: int = NODES) -> dict[str, NodeCapacity]:
    """Free nodes of Table II: 8 CPUs, 22 GB, three GPUs."""
    names = (f"t{number:03}" for number in range(count))
    return {name: NodeCapacity(name, 0b111, 8, 22_000) for name in names}


def pool(count: int = NODES) -> dict[str, NodeCapacity]:
    """The same GPUs in one node that never runs out of anything else."""
    return {"pool": NodeCapacity("pool", (1 << 3 * count) - 1, float("inf"), float("inf"))}


def jobs(
    seed: int, count: int = JOBS, year: Year = PRINTED, wires: NetworkSpeeds = PAPER_WIRES
) -> list[QueuedLoanJob]:
    """The first `count` jobs of the year, in the order of their submits."""
    draw = np.random.default_rng(seed)
    periods = draw.lognormal(0.0, year.busy_sigma, -(-DAYS // year.busy_days))
    volume = np.repeat(periods, year.busy_days)[:DAYS]
    day = draw.choice(DAYS, size=JOBS, p=volume / volume.sum())
    submits = np.sort((day + draw.random(JOBS)) * DAY_S)
    times = np.minimum(draw.lognormal(0.0, year.times_sigma, JOBS), 60.0)
    sizes = draw.choice(SIZES, size=JOBS, p=year.sizes)
    gpus = draw.choice((1, 2, 3), size=JOBS, p=year.gpus)
    times = _scaled(times, sizes * (3 - gpus), year)
    cpus = draw.integers(1, year.cpus + 1, size=JOBS)
    memory_gb = draw.uniform(0.5, year.memory_gb, size=JOBS)
    calls = draw.uniform(100, 100_000, size=(2, JOBS))
    return [
        QueuedLoanJob(
            float(submits[i]),
            RemoteJob(
                Request((int(gpus[i]),) * int(sizes[i]), job_id=i),
                cpus=int(cpus[i]),
                memory_mb=int(1000 * memory_gb[i]),
            ),
            work(
                float(times[i]), float(memory_gb[i]), float(calls[0, i]), float(calls[1, i]), wires
            ),
        )
        for i in range(count)
    ]


def _scaled(times: _Numbers, idle_gpus: _Numbers, year: Year) -> _Numbers:
    """Times within [1 s, LONGEST_S] by which jobs alone on their nodes leave 78.02 GPUs idle."""
    scaled: _Numbers
    if year.execution_mean_s is not None:
        scaled = np.clip(times * year.execution_mean_s / times.mean(), 1.0, LONGEST_S)
        return scaled
    scaled = times
    for _ in range(10):  # the bounds bend the scaling; it settles within three
        scaled = scaled * (IDLE_GPUS * DAYS * DAY_S / (scaled * idle_gpus).sum())
        scaled = np.clip(scaled, 1.0, LONGEST_S)
    return scaled


def drawn_work(
    draw: np.random.Generator, time_s: float, wires: NetworkSpeeds = PAPER_WIRES
) -> JobWork:
    """`work` of a job in a log without transfers: drawn as in Table I, memory of 0.5 to 11 GB."""
    memory_gb, connections, calls = draw.uniform((0.5, 100, 100), (11.0, 100_000, 100_000))
    return work(time_s, float(memory_gb), float(connections), float(calls), wires)


def work(
    time_s: float,
    memory_gb: float,
    connections: float,
    calls: float,
    wires: NetworkSpeeds = PAPER_WIRES,
) -> JobWork:
    """A job that takes `time_s` alone; what it moves is its memory (Table I).

    A job too short for the communication drawn does proportionally less of it.
    """
    drawn = JobWork(0.0, memory_gb, memory_gb, memory_gb, connections, calls)
    communication_s = execution_s(drawn, wires, False)
    share = min(1.0, time_s / communication_s)
    moved = memory_gb * share
    other_s = time_s - share * communication_s
    return JobWork(other_s, moved, moved, moved, connections * share, calls * share)
