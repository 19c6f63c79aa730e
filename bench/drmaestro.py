"""drmaestro: one solve of 1,000 machines and 1,000 waiting jobs.

Machines of four GPUs and 16 CPUs: half of them have GPUs in use, a third have no CPUs left (as in
the thesis, which starts with jobs of CPUs alone). Jobs of 1-4 tasks of 1-4 GPUs ask for more
than there is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

from bench.measure import Figure, at_most, conditions, quantile
from policies import Request
from policies.remote import NodeCapacity, RemoteJob, RemotePlacement
from policies.remote.drmaestro import DRMaestro, by_ortools

SEED = 1
#: Machines, and as many jobs; fewer without OR-Tools, which is made for such sizes.
SIZE, SIZE_NETWORKX = 1000, 50
RUNS = 5
BAR_S = 1.0


def instance(draw: Random, size: int) -> tuple[list[RemoteJob], dict[str, NodeCapacity]]:
    """The waiting jobs and the machines."""
    nodes = {}
    for number in range(size):
        name = f"m{number:04}"
        free = draw.randrange(16) if draw.random() < 0.5 else 15
        cpus = 0 if draw.random() < 0.33 else draw.choice((8, 16))
        nodes[name] = NodeCapacity(name, free, cpus, 256_000)
    jobs = [
        RemoteJob(
            Request((draw.choice((1, 2, 3, 4)),) * draw.choice((1, 1, 1, 2, 4))),
            cpus=draw.choice((1, 4)),
            memory_mb=draw.choice((8_000, 64_000)),
            rounds_waited=draw.randrange(5),
            sensitivity=draw.choice((0.01, 0.32)),
        )
        for _ in range(size)
    ]
    return jobs, nodes


def run() -> Iterator[Figure]:
    """Seconds of a whole plan."""
    draw = Random(SEED)
    planner = DRMaestro()
    size = SIZE if planner.solve is by_ortools else SIZE_NETWORKX
    took, placed, remote = [], [], 0
    for _ in range(RUNS):
        jobs, nodes = instance(draw, size)
        began = time.perf_counter()
        answers = planner.decide(jobs, nodes)
        took.append(time.perf_counter() - began)
        started = [answer for answer in answers if isinstance(answer, RemotePlacement)]
        placed.append(len(started))
        remote += sum(answer.remote_gpus for answer in started)
    solver = planner.solve.__name__
    detail = {"seed": SEED, "solver": solver, "placed": placed, "remote_gpus": remote}
    median, detail = quantile(took, 0.5), {**detail, **conditions()}
    name = f"drmaestro.solve_{size}_machines_{size}_jobs"
    if planner.solve is by_ortools:
        yield at_most(name, median, "s", BAR_S, detail=detail)
    else:  # the bar is that of the extra `flow`
        yield Figure(name, round(median, 3), "s", detail=detail)
