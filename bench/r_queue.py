"""r-queue: one decision on 480 nodes of three GPUs, nearly all in use.

Jobs of 1-8 tasks of 1-3 GPUs, so that whole nodes, shared nodes, remote GPUs and waits all occur.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

from bench.measure import Figure, at_most, conditions, quantile
from policies import Request
from policies.remote import NodeCapacity, RemoteJob, RemotePlacement
from policies.remote.r_queue import RQueue

SEED = 1
NODES = 480
DECISIONS = 500
BAR_MS = 1.0


def snapshot(draw: Random) -> tuple[dict[str, NodeCapacity], dict[str, int]]:
    """The nodes, and how many jobs run on each: one, but on one node in five hundred none.

    Three in a hundred have idle GPUs.
    """
    nodes, running = {}, {}
    for number in range(NODES):
        name = f"t{number:03}"
        running[name] = int(draw.random() >= 0.002)
        nodes[name] = NodeCapacity(name, 7, 8, 22_000)
        if running[name]:
            free = draw.choice((1, 1, 1, 3)) if draw.random() < 0.03 else 0
            nodes[name] = NodeCapacity(name, free, 4, 11_000)
    return nodes, running


def run() -> Iterator[Figure]:
    """Milliseconds of a decision."""
    draw, queue = Random(SEED), RQueue()
    took, started, remote = [], 0, 0
    for number in range(DECISIONS):
        if number % 50 == 0:
            nodes, running = snapshot(draw)
        job = RemoteJob(Request((draw.choice((1, 2, 3)),) * draw.choice((1, 1, 2, 4, 8))), cpus=2)
        began = time.perf_counter()
        answer = queue.decide(job, nodes, running)
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
