"""launch: what the SPANK plugin adds to a task's start, and to a job of 64 tasks.

The time per task is taken inside the plugin (its record= argument) on the dgx nodes, which have the
largest table. The job of 64 tasks runs with and without the plugin in turns: only plugstack.conf
changes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

from bench.live.cluster import BenchCluster, clean
from bench.measure import Figure, at_most, conditions, quantile

STEPS = 12
TASKS = 8
ROUNDS = 8
BAR_MS = 1.0
FOLDER = "/home/alice/launch"
PLUGIN = "optional /cluster/launch/gputopo.so table=/cluster/launch/%n.table"
RECORDED = f"{PLUGIN} devices=/dev/fakegpu record={FOLDER}"
_TOOK = re.compile(r"task_us=(\d+) prepare_us=(\d+)")
#: 64 tasks on 16 CPUs share eight GPUs.
WIDE = ("srun", "-w", "dgx1", "-n64", "--overcommit", "--gres=gpu:8", "true")


def per_task(cluster: BenchCluster) -> Figure:
    """The median over tasks that share the node's GPUs and tasks of one GPU each."""
    cluster.put("ctl", "/cluster/plugstack.conf", RECORDED + "\n")
    cluster.sh(f"rm -rf {FOLDER}; install -d -o alice -g alice {FOLDER}")
    for i in range(STEPS):
        wanted = "--gres=gpu:8" if i % 2 else "--gpus-per-task=1"
        cluster.sh(f"srun -w dgx1 -n{TASKS} {wanted} true", user="alice")
    times = _TOOK.findall(cluster.sh(f"cat {FOLDER}/*"))
    if len(times) != STEPS * TASKS:
        raise AssertionError(f"{len(times)} tasks recorded; expected {STEPS * TASKS}")
    task_ms = [int(task) / 1e3 for task, _ in times]
    step_ms = [int(step) / 1e3 for _, step in times]
    detail = {
        "p99_ms": round(quantile(task_ms, 0.99), 3),
        "once_per_step_ms": round(quantile(step_ms, 0.5), 3),
        "tasks": len(times),
        **conditions(),
    }
    return at_most("launch.per_task", quantile(task_ms, 0.5), "ms", BAR_MS, detail=detail)


def wide_job(cluster: BenchCluster) -> Figure:
    """Seconds of a job of 64 tasks with the plugin over those without it."""
    sides = {"with": PLUGIN + "\n", "without": "# nothing\n"}
    took: dict[str, list[float]] = {side: [] for side in sides}
    for i in range(ROUNDS):
        for side in sides if i % 2 else reversed(sides):
            cluster.put("ctl", "/cluster/plugstack.conf", sides[side])
            start = time.monotonic()
            cluster.run("ctl", list(WIDE), user="alice", timeout_s=120)
            took[side].append(time.monotonic() - start)
    middle = {side: round(quantile(values, 0.5), 3) for side, values in took.items()}
    detail: dict[str, Any] = {
        "median_s": middle,
        "seconds": {side: [round(value, 3) for value in values] for side, values in took.items()},
        "tasks": 64,
        **conditions(),
    }
    return Figure(
        "launch.64_tasks",
        round(middle["with"] - middle["without"], 4),
        "s added",
        compared_with=f"the same job without the plugin: {middle['without']} s",
        detail=detail,
    )


def run() -> Iterator[Figure]:
    """Both, in the variant with the plugin."""
    with clean() as cluster:
        cluster.switch("gputopo-launch")
        yield per_task(cluster)
        yield wide_job(cluster)
