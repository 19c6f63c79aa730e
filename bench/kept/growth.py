"""growth: what a decision costs by nodes, GPUs per node, changes and waiting jobs.

The first three as `replay` has a large cluster, one of them varied at a time, with jobs of one and
two GPUs, which fit on every cluster. Engines of all sizes are asked in turns, so that whatever else
the machine does meanwhile meets all of them alike. Waiting jobs: one plan of the slots mode, in
process. All rows are written to docs/pictures/growth.json, of which `make docs` draws growth.svg.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bench.kept.cluster import NodeKind
from bench.kept.replay import OF_32, Replay, Took, on
from bench.measure import Figure, conditions, quantile
from bench.questions import read
from policies.contract.bits import lowest_bits
from slurm_plugin.act.gates.plan import ChosenSlots, GateContext
from slurm_plugin.act.gates.planning import plan
from slurm_plugin.act.gates.want import Wants
from slurm_plugin.base.protocol import Place
from slurm_plugin.queue.capacity import Node, emptied
from slurm_plugin.slurm.interface import QueuedJob

ROWS = Path(__file__).parents[2] / "docs" / "pictures" / "growth.json"
POLICIES = ("mapa", "topo-aware")
#: Questions of each kind in one of the rounds; plans for each number of jobs.
ROUNDS, PER_ROUND, PLANS = 10, 20, 20
NODES = (10, 100, 1000, 5000, 12_500, 25_000)
#: Machines of as many GPUs; there are 100,000 GPUs in all.
GPUS = {4: "minsky", 8: "dgx1v", 16: "dgx2", 32: OF_32, 72: "gb200-nvl72"}
ALL_GPUS = 100_000
CHANGES = (1, 10, 100, 500)
WAITING = (10, 100, 1000, 10_000)


class Point(NamedTuple):
    """A cluster, and how many nodes change between two questions; `at` is what is varied."""

    at: int
    kind: NodeKind
    changed: int = 10


#: What was varied, and of each policy (or the plan) what it took.
Row = dict[str, float]


def row(at: int, took: Sequence[Took]) -> Row:
    """Median and p99 in ms, of processor time and by the clock."""
    cpu, wall = [one.cpu_ms for one in took], [one.wall_ms for one in took]
    values = {
        "cpu_ms": quantile(cpu, 0.5), "cpu_p99_ms": quantile(cpu, 0.99),
        "wall_ms": quantile(wall, 0.5), "wall_p99_ms": quantile(wall, 0.99),
    }  # fmt: skip
    return {"at": at, **{key: round(value, 4) for key, value in values.items()}}


def small_jobs() -> list[Place]:
    """Recorded jobs of one node and one or two GPUs, in turn, without a hint."""
    jobs: dict[int, Place] = {}
    for job in read():
        own = [node.own.bit_count() for node in job.candidates if node.own]
        if own in ([1], [2]):
            jobs.setdefault(own[0], replace(job, hint=""))
    return [jobs[1], jobs[2]]


def asked(points: Sequence[Point]) -> dict[str, list[Row]]:
    """Of each policy a row for each point, all of them asked in turns."""
    jobs = small_jobs()
    with ExitStack() as stack:
        replays: dict[NodeKind, Replay] = {}
        for point in points:
            if point.kind not in replays:
                replays[point.kind] = stack.enter_context(on([point.kind], POLICIES))
        took: dict[tuple[Point, str], list[Took]] = {
            (point, policy): [] for point in points for policy in POLICIES
        }
        for _ in range(ROUNDS):
            for (point, policy), found in took.items():
                replay = replays[point.kind]
                replay.later.pop(policy, None)
                replay.ask(policy, jobs, PER_ROUND, point.changed)
                # Not the first ones: what others did has emptied the processor's caches.
                found += replay.later[policy][2:]
    return {policy: [row(point.at, took[point, policy]) for point in points] for policy in POLICIES}


def by_nodes() -> dict[str, list[Row]]:
    """On DGX-1V."""
    return asked([Point(nodes, NodeKind("v", nodes, 8, "dgx1v")) for nodes in NODES])


def by_gpus() -> dict[str, list[Row]]:
    """On as many GPUs in all."""
    kinds = {gpus: NodeKind("v", ALL_GPUS // gpus, gpus, machine) for gpus, machine in GPUS.items()}
    return asked([Point(gpus, kind) for gpus, kind in kinds.items()])


def by_changes() -> dict[str, list[Row]]:
    """On 12,500 DGX-1V."""
    kind = NodeKind("v", 12_500, 8, "dgx1v")
    return asked([Point(changed, kind, changed) for changed in CHANGES])


def gated(job_id: int) -> QueuedJob:
    """A job behind its gate: one of four sizes, one of six time limits."""
    gpus, now = 1 + job_id % 4, 1000
    words = f"token=t{job_id} tpn=gres/gpu:{gpus} nodes=1-1 by=node"
    return QueuedJob(
        job_id,
        str(job_id),
        partition="batch",
        state="PENDING",
        reason="BeginTime",
        priority=100_000 - job_id,
        eligible=now + 60,
        cpus=1,
        time_limit_s=600 + 60 * (job_id % 6),
        tres_per_node=f"gres/gpu:{gpus}",
        admin_comment=f"[gpu-slots: gated {words}]",
    )


def planned(waiting: int) -> Iterator[Took]:
    """Plans for so many jobs on 1,000 nodes of eight GPUs, all in use but one in each round."""
    types = tuple(f"v100.s{gpu}" for gpu in range(8))
    full = Node("", types, 0, 40, 100_000, partitions=frozenset({"batch"}))
    jobs = [gated(number) for number in range(1, waiting + 1)]
    wants = Wants()
    for number in range(PLANS):
        nodes = {f"n{at:04}": replace(full, name=f"n{at:04}") for at in range(1000)}
        freed = f"n{37 * number % 1000:04}"
        nodes[freed] = replace(full, name=freed, free=1 << number % 8)
        context = GateContext(now=1000 + number, lease_s=120, grace_s=30)
        began, cpu = time.perf_counter(), time.thread_time()
        read_ = wants.read(jobs, emptied(nodes))
        made = plan(
            jobs,
            read_,
            nodes,
            context,
            lambda name, job, want, found: ChosenSlots(
                found[0], lowest_bits(found[0].free, want.need.gpus)
            ),
        )
        took = Took(1e3 * (time.perf_counter() - began), 1e3 * (time.thread_time() - cpu))
        assert len(made.releases) == 1, "one GPU is free, and a job of one waits"
        if number:
            yield took


def by_waiting() -> dict[str, list[Row]]:
    """A plan of all that wait."""
    return {"one plan": [row(waiting, list(planned(waiting))) for waiting in WAITING]}


def run() -> Iterator[Figure]:
    """All rows; the figures are how many times the least of what is varied the most takes."""
    curves = {"nodes": by_nodes, "gpus": by_gpus, "changes": by_changes, "waiting": by_waiting}
    rows: dict[str, dict[str, list[Row]]] = {}
    for name, measure in curves.items():
        rows[name] = measure()
        for line, some in rows[name].items():
            grown = some[-1]["cpu_ms"] / some[0]["cpu_ms"]
            label = f"growth.{name}.{line.replace(' ', '_')}"
            detail = {"rows": some, "at": [some[0]["at"], some[-1]["at"]], **conditions()}
            yield Figure(label, round(grown, 2), "times", detail=detail)
    ROWS.write_text(json.dumps({**conditions(), "rows": rows}, indent=1) + "\n")
