"""Machines and jobs of the thesis's section 5.6, as far as it prints them.

Printed: machines of four GPUs, 20 cores with 8 threads, 512 GB (Table 6); jobs drawn uniformly
from Rodinia's applications, chosen so that they take equally long, 16 submits per second; jobs
of CPUs and memory alone for 800 s beforehand, which on the testbed leave 6 of 16 GPUs in reach.

Not printed, and fixed before anything ran: a job is one task of one GPU, 8 threads and 16 GB, whose
time is within 10 % of the mean (uniform); Hotspot, whose network shares are not printed, is left
out; which machines are full (`FREE_TASKS`); a round per second; a job's goal is a slowdown of at
most 1.01. The mean time is set so that the line *without* remote GPUs takes as long as in the
thesis.
"""

from __future__ import annotations

import numpy as np

from papers.experiments.rqueue.middleware import PAPERS, found
from papers.simulators.planned_loans import PlannedJob
from policies import Request
from policies.remote import NodeCapacity, RemoteJob
from policies.remote.drmaestro import RODINIA, NetworkProfile

GPUS, THREADS, MEMORY_MB = 4, 160, 512_000
CPUS, TASK_MB = 8, 16_000
WARM_S, ARRIVALS_PER_S, TIMES_SPREAD = 800.0, 16.0, 0.1
INTERVAL_S, GOAL = 1.0, 1.01
#: The network of the thesis's section 3.3, 10 Gbit/s.
THESIS_GB_S = 1.25
#: GPUs of four machines in reach without remote ones -> tasks that each machine has room for beside
#: the jobs of CPUs alone; None: it has no such jobs. The thesis prints 6 for its testbed.
FREE_TASKS: dict[int, tuple[int | None, ...]] = {
    6: (None, 2, 0, 0),
    8: (None, None, 0, 0),
    10: (None, None, 2, 0),
    12: (None, None, None, 0),
}

#: Mean seconds of a job by experiment and GPUs in reach: with these the line without remote GPUs
#: takes 2,486, 1,087.73 and 413.08 s, within 0.6 % in the mean of seeds 1-3.
MEANS_S = {
    "drmaestro-testbed": {6: 60.2, 8: 63.6, 10: 66.6, 12: 69.7},
    "drmaestro-scale": {6: 68.9, 8: 78.9, 10: 90.8, 12: 101.1},
    "drmaestro-network": {6: 36.9, 8: 49.1, 10: 58.4, 12: 68.5},
}

#: What a job may ask for, drawn uniformly: the GPUs of each of its tasks. The thesis's Rodinia
#: applications use one; the others exercise its gangs (section 5.3.3).
SIZES: dict[str, tuple[tuple[int, ...], ...]] = {
    "one": ((1,),),
    "several": ((1,), (2,), (4,)),
    "gangs": ((1,), (2,), (4,), (1, 1), (2, 2), (4, 4)),
}

#: (second, machine, CPUs, memory in MB) that come back.
Warm = list[tuple[float, str, int, int]]


def machines(count: int, in_reach: int) -> tuple[dict[str, NodeCapacity], Warm]:
    """The machines with their first jobs running, and what those give back."""
    capacities, warm = {}, []
    for number in range(count):
        name = f"m{number:03}"
        left = FREE_TASKS[in_reach][number % 4]
        cpus = THREADS if left is None else CPUS * left
        memory_mb = MEMORY_MB if left is None else TASK_MB * left
        capacities[name] = NodeCapacity(name, (1 << GPUS) - 1, cpus, memory_mb)
        if left is not None:
            warm.append((WARM_S, name, THREADS - cpus, MEMORY_MB - memory_mb))
    return capacities, warm


def network_of(name: str, middleware: str) -> NetworkProfile:
    """How one of Rodinia's applications feels the network: the thesis's shares, or by a site.

    Of the thesis's figures the share on an idle network gives the bytes, over its 10 Gbit/s, and
    that on a full one by how much these take longer; a site's give what the bytes take.
    """
    printed = RODINIA[name]
    if middleware == PAPERS:
        return printed
    sides = found(middleware)
    gb = printed.overhead * THESIS_GB_S
    added = max(0.0, gb / sides.remote.gb_s - gb / sides.local.gb_s)
    loaded = added * (1 / (1 - printed.loaded) - 1) / printed.overhead
    return NetworkProfile(added / (1 + added), loaded / (1 + loaded))


def jobs(
    seed: int,
    count: int,
    mean_s: float,
    remote: bool,
    goal: float = float("inf"),
    sizes: str = "one",
    middleware: str = PAPERS,
) -> list[PlannedJob]:
    """The jobs in the order of their submits; the same draws whatever the mean and the line.

    `goal` is the slowdown over which the network may hold a job back. Jobs of other sizes take as
    much shorter as they have more GPUs in the mean; a task has 8 threads and 16 GB for each GPU.
    """
    draw = np.random.default_rng(seed)
    submits = np.cumsum(draw.exponential(1 / ARRIVALS_PER_S, count))
    names = draw.choice(tuple(RODINIA), size=count)
    times = mean_s * draw.uniform(1 - TIMES_SPREAD, 1 + TIMES_SPREAD, count)
    kinds = SIZES[sizes]
    times *= len(kinds) / sum(map(sum, kinds))
    drawn = draw.integers(len(kinds), size=count)
    jobs = []
    for submit_s, name, alone_s, size in zip(submits, names, times, drawn, strict=True):
        network, gpus = network_of(str(name), middleware), kinds[size]
        job = RemoteJob(
            Request(gpus),
            cpus=CPUS * gpus[0],
            memory_mb=TASK_MB * gpus[0],
            sensitivity=network.sensitivity,
            max_slowdown=goal,
            remote_allowed=remote,
        )
        jobs.append(PlannedJob(float(submit_s), job, float(alone_s), network))
    return jobs
