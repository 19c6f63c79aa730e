"""rqueue-tsubame and rqueue-shrink: sections IV.C and IV.D on the synthetic year."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from policies.r_queue import LEAST_OCCUPIED, LOCAL_FIRST, GQueue, RQueue
from simulation.experiments import Result
from simulation.experiments.rqueue.workload import NODES, jobs, nodes
from simulation.remote import Ended, QueuedJob, RemoteSimulator

G_QUEUE, SHARED = "g-queue", "nodes shared, nothing remote"
R_QUEUE, OURS = "r-queue, the paper's donors", "r-queue, local first"
QUEUES: dict[str, GQueue | RQueue] = {
    G_QUEUE: GQueue(),
    SHARED: RQueue(LEAST_OCCUPIED, remote=False),
    R_QUEUE: RQueue(LEAST_OCCUPIED),
    OURS: RQueue(LOCAL_FIRST),
}
#: Section IV.C. The g-queue's means follow from Table III's 480 nodes and the text's percentages.
PAPER = {
    G_QUEUE: {"idle_gpus": 78.02, "wait_mean_s": 3818.0, "execution_mean_s": 15_148.0},
    R_QUEUE: {
        "wait_decrease_percent": 25.24,
        "execution_increase_percent": 0.03,
        "life_decrease_percent": 5.06,
        "idle_gpus": 66.56,
        "waiting_longer_percent": 0.81,
    },
}
#: Table III: seconds by which the mean lifetime falls against the G queue on 480 nodes.
SHRUNK = {450: -907.29, 460: -37.42, 470: 444.83, 480: 959.65}
NOTES = (
    "The year is synthetic: no log of TSUBAME2.5 is public. It was set by figures of the G queue,"
    " with seed 1: the idle GPUs as printed, mean wait and execution time as they follow from the"
    " decreases printed in seconds and in percent.",
    "Idle GPUs are those on nodes in use: over all nodes no queue could change their mean, for the"
    " work is the same.",
    "Whoever runs anything on a node uses it, rCUDA servers included; the paper does not say how it"
    " counts nodes that only lend.",
    "A job too short for the calls and bytes drawn for it does proportionally fewer.",
)


def simulated(
    name: str, year: Sequence[QueuedJob], node_count: int = NODES
) -> tuple[list[Ended], float]:
    """What became of the jobs, and the mean of the idle GPUs until the last one's end."""
    simulator = RemoteSimulator(nodes(node_count), QUEUES[name])
    ended = simulator.run(year)
    return ended, simulator.idle_gpu_s / simulator.end_s


def figures(ended: Sequence[Ended], idle: float, base: Sequence[Ended]) -> dict[str, float]:
    """The paper's metrics of one run, against the G queue's."""
    found, before = _means(ended), _means(base)
    pairs = list(zip(ended, base, strict=True))
    return {
        **found,
        "idle_gpus": idle,
        "wait_decrease_percent": 100 * (1 - found["wait_mean_s"] / before["wait_mean_s"]),
        "execution_increase_percent": 100
        * (found["execution_mean_s"] / before["execution_mean_s"] - 1),
        "life_decrease_percent": 100 * (1 - found["life_mean_s"] / before["life_mean_s"]),
        "waiting_longer_percent": 100 * fmean(new.wait_s > old.wait_s + 1 for new, old in pairs),
        "remote_percent": 100 * fmean(new.remote_gpus > 0 for new in ended),
        "execution_longest_added_s": max(new.execution_s - new.alone_s for new in ended),
    }


def _means(ended: Sequence[Ended]) -> dict[str, float]:
    return {
        "wait_mean_s": fmean(job.wait_s for job in ended),
        "execution_mean_s": fmean(job.execution_s for job in ended),
        "life_mean_s": fmean(job.life_s for job in ended),
    }


def tsubame(seeds: Sequence[int]) -> Result:
    """The whole year under every queue; means over the seeds."""
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in QUEUES}
    for seed in seeds:
        year = jobs(seed)
        base, idle = simulated(G_QUEUE, year)
        rows[G_QUEUE].append(_means(base) | {"idle_gpus": idle})
        for name in (SHARED, R_QUEUE, OURS):
            rows[name].append(figures(*simulated(name, year), base))
    return Result("rqueue-tsubame", tuple(seeds), _averaged(rows), PAPER, NOTES)


def shrink(seeds: Sequence[int]) -> Result:
    """The R queue on fewer nodes against the G queue on 480."""
    rows: dict[str, list[dict[str, float]]] = {R_QUEUE: [], OURS: []}
    for seed in seeds:
        year = jobs(seed)
        base = _means(simulated(G_QUEUE, year)[0])
        for name, found in rows.items():
            lives = {count: _means(simulated(name, year, count)[0]) for count in SHRUNK}
            found.append(
                {
                    f"life_decrease_{count}_nodes_s": base["life_mean_s"] - means["life_mean_s"]
                    for count, means in lives.items()
                }
            )
    paper = {R_QUEUE: {f"life_decrease_{count}_nodes_s": s for count, s in SHRUNK.items()}}
    return Result("rqueue-shrink", tuple(seeds), _averaged(rows), paper, NOTES)


def _averaged(rows: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        name: {metric: fmean(row[metric] for row in found) for metric in found[0]}
        for name, found in rows.items()
    }
