"""A synthetic year of TSUBAME2.5's G queue; its log is not public.

Taken from what the paper prints of the G queue: 63,484 jobs in a year, 480 nodes of Table II, 1-3
GPUs per node, and Table I's ways of drawing what the log lacks. Three numbers were set once so
that the *G queue's* figures come out: the mean execution time, the idle GPUs and the mean wait
(see `TARGETS`). No figure of the R queue was looked at for them.
"""

from __future__ import annotations

import numpy as np

from policies import Request
from policies.r_queue import Network, Work, execution_s
from policies.remote import RemoteJob, Room
from simulation.remote import QueuedJob

JOBS, NODES, YEAR_S = 63_484, 480, 365 * 86_400.0
#: The G queue in the paper: 78.02 idle GPUs; Table III's 480 nodes over the text's percentages
#: (963.60 s / 25.24 %, 959.65 s / 5.06 %) give its mean wait and lifetime.
TARGETS = {"idle_gpus": 78.02, "wait_mean_s": 3818.0, "execution_mean_s": 15_148.0}
#: Shares of jobs by GPUs per node (1, 2, 3): most ask for whole nodes (Figure 2).
GPUS = (0.105, 0.142, 0.753)
#: Nodes of a job, and their shares.
SIZES = (1, 2, 4, 8, 16, 32, 64)
SHARES = (0.40, 0.15, 0.15, 0.13, 0.09, 0.05, 0.03)
#: Spread (sigma of a lognormal) of execution times, and of the days' numbers of submits.
TIMES_SIGMA, DAYS_SIGMA = 1.5, 0.6
LONGEST_S = 96 * 3600.0


def nodes(count: int = NODES) -> dict[str, Room]:
    """Free nodes of Table II: 8 CPUs, 22 GB, three GPUs."""
    names = (f"t{number:03}" for number in range(count))
    return {name: Room(name, 0b111, 8, 22_000) for name in names}


def jobs(seed: int, count: int = JOBS) -> list[QueuedJob]:
    """The first `count` jobs of the year, in the order of their submits."""
    draw = np.random.default_rng(seed)
    days = draw.lognormal(0.0, DAYS_SIGMA, 365)
    day = draw.choice(365, size=JOBS, p=days / days.sum())
    submits = np.sort((day + draw.random(JOBS)) * 86_400.0)
    times = np.minimum(draw.lognormal(0.0, TIMES_SIGMA, JOBS), 60.0)
    times = np.clip(times * TARGETS["execution_mean_s"] / times.mean(), 1.0, LONGEST_S)
    sizes = draw.choice(SIZES, size=JOBS, p=SHARES)
    gpus = draw.choice((1, 2, 3), size=JOBS, p=GPUS)
    cpus = draw.integers(1, 5, size=JOBS)
    memory_gb = draw.uniform(0.5, 11.0, size=JOBS)
    calls = draw.uniform(100, 100_000, size=(2, JOBS))
    return [
        QueuedJob(
            float(submits[i]),
            RemoteJob(
                Request((int(gpus[i]),) * int(sizes[i]), job_id=i),
                cpus=int(cpus[i]),
                memory_mb=int(1000 * memory_gb[i]),
            ),
            work(float(times[i]), float(memory_gb[i]), float(calls[0, i]), float(calls[1, i])),
        )
        for i in range(count)
    ]


def work(time_s: float, memory_gb: float, connections: float, calls: float) -> Work:
    """A job that takes `time_s` alone; what it moves is its memory (Table I).

    A job too short for the communication drawn does proportionally less of it.
    """
    drawn = Work(0.0, memory_gb, memory_gb, memory_gb, connections, calls)
    communication_s = execution_s(drawn, Network(), False)
    share = min(1.0, time_s / communication_s)
    moved = memory_gb * share
    other_s = time_s - share * communication_s
    return Work(other_s, moved, moved, moved, connections * share, calls * share)
