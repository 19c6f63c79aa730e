"""r-queue: one decision on 480 nodes of three GPUs, nearly all in use.

From the snapshot to the answer, rooms and occupancy counted anew each time; jobs of 1-8 tasks
of 1-3 GPUs, so that whole nodes, shared nodes, remote GPUs and waits all occur.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

from bench.measure import Figure, at_most, conditions, quantile
from gres_topology import catalog
from policies import Cluster, NodeState, Request, RunningJob
from policies.remote import RemoteJob, RemotePlacement
from policies.remote.r_queue import RQueue

SEED = 1
NODES = 480
DECISIONS = 500
BAR_MS = 1.0


def snapshot(draw: Random) -> Cluster:
    """Nodes with one job each, but one in five hundred; three in a hundred have idle GPUs."""
    topology = catalog.load("tsubame25")
    nodes, jobs = {}, []
    for number in range(NODES):
        name = f"t{number:03}"
        if draw.random() < 0.002:
            nodes[name] = NodeState(name, topology, 7, free_cpus=8, free_memory_mb=22_000)
            continue
        free = draw.choice((1, 1, 1, 3)) if draw.random() < 0.03 else 0
        nodes[name] = NodeState(name, topology, free, free_cpus=4, free_memory_mb=11_000)
        jobs.append(RunningJob(number, {name: 7 & ~free}))
    return Cluster(nodes, tuple(jobs))


def run() -> Iterator[Figure]:
    """Milliseconds of a decision."""
    draw, queue = Random(SEED), RQueue()
    took, started, remote = [], 0, 0
    for number in range(DECISIONS):
        if number % 50 == 0:
            cluster = snapshot(draw)
        job = RemoteJob(Request((draw.choice((1, 2, 3)),) * draw.choice((1, 1, 2, 4, 8))), cpus=2)
        began = time.perf_counter()
        answer = queue.place(job, cluster)
        took.append(1000 * (time.perf_counter() - began))
        if isinstance(answer, RemotePlacement):
            started += 1
            remote += answer.remote_gpus > 0
    detail = {
        "seed": SEED,
        "started": started,
        "with_remote_gpus": remote,
        "p99_ms": round(quantile(took, 0.99), 3),
        **conditions(),
    }
    median = quantile(took, 0.5)
    yield at_most(f"r-queue.decision_{NODES}_nodes", median, "ms", BAR_MS, detail=detail)
