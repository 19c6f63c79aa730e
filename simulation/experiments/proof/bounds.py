"""How much better anybody could be in a cell: what is lost by links, by guesses, by Slurm's order.

`ONE_POOL`: the same queue under the same Slurm where every GPU will do and all links are ideal.
`TOLD`: ours with the true run times of all jobs that wait and run. `LEAST`: a mean wait that no
schedule in any order falls below.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from statistics import fmean

import numpy as np

from gres_topology import NodeTopology
from gres_topology.catalog import declared
from policies import Ahead, Release
from policies.registry import registry
from simulation.core.jobs import SimJob
from simulation.core.record import Running, SimulatedRun
from simulation.core.slurm_site import SlurmSite
from simulation.experiments.proof.cells import Workload
from simulation.experiments.proof.judging import OURS, row_of
from simulation.models.placing import AHEAD
from simulation.models.slurm import SlurmSimulator
from simulation.models.speed import Nodes, PlacedJob, Speed
from simulation.report.metrics import quantile

ONE_POOL, TOLD, LEAST = "one pool", "told", "least"
#: Edges of the prices' steps, and how often prices are changed.
STEPS, ROUNDS = 300, 300


class Ideal(Speed):
    """Each job as long as in its best configuration, wherever it runs and in however many parts."""

    def __init__(self, made: Workload) -> None:
        self._best_s = {job.job_id: made.speed.ideal_s(job) for job in made.jobs}

    def full_s(self, placed: PlacedJob, nodes: Nodes, beside: Sequence[PlacedJob]) -> float:
        """The best time."""
        return self._best_s[placed.job.job_id]

    def ideal_s(self, job: SimJob) -> float:
        """The best time."""
        return self._best_s[job.job_id]


@cache
def _one_gpu() -> NodeTopology:
    text = "{name: one, source: assumed, model: any, rates: {pcie: 1}, gpus: 1}"
    return declared.read(text, name="one", source="assumed")


def one_pool(made: Workload) -> SimulatedRun:
    """The queue where each GPU is a node of its own, so that no GPU is in the wrong place.

    CPUs and memory of nodes are left out. Jobs that end sooner can delay others under backfill, so
    this is where a run usually cannot get, not a strict bound.
    """
    gpus = sum(topology.gpus for topology in made.nodes.values())
    nodes = {f"g{number:03}": _one_gpu() for number in range(gpus)}
    jobs = [replace(job, gpus_per_node=(1,) * sum(job.gpus_per_node), cpus=0, memory_mb=0, hint="")
            for job in made.jobs]  # fmt: skip
    site = SlurmSite(made.site.scheduling)
    return SlurmSimulator(nodes, registry.build("first-fit"), site, Ideal(made)).run(jobs)


class Told(SlurmSimulator):
    """A policy that looks ahead sees how long jobs run in truth; Slurm plans with limits still.

    What it is not told: who will be submitted later.
    """

    def _ahead(self, job: SimJob) -> Ahead | None:
        ahead = SlurmSimulator._ahead(self, job)
        if ahead is None:
            return None
        others = (one for one in self._seen_by(job) if one is not job)
        queue = [self._requests.waiting(one, self.speed.ideal_s(one))
                 for one in itertools.islice(others, AHEAD)]  # fmt: skip
        releases = [
            Release(run.end_s(), name, mask, run.start_s, run.job.job_id)
            for run in heapq.nsmallest(AHEAD, self.running.values(), key=Running.end_s)
            for name, mask in run.masks.items()
        ]
        lasts_s = self.speed.ideal_s(job)
        return replace(ahead, lasts_s=lasts_s, queue=queue, releases=releases, used=())


def least_mean_wait_s(
    jobs: Sequence[SimJob], gpus: int, ideal_s: Callable[[SimJob], float], reached_s: float
) -> float:
    """A mean wait below which no schedule comes, in any order, with all knowledge.

    Every schedule is one of a single pool too, where each job takes its best time. There the pool's
    capacity is given up for prices of GPU time (Lagrange); with any prices the cheapest start of
    each job alone gives a lower bound, and better prices a better one (time-indexed relaxation:
    Dyer and Wolsey, Discrete Applied Mathematics 26, 1990). `reached_s`: the mean wait of some
    schedule, which sets how far prices move.
    """
    submit = np.array([job.submit_s for job in jobs])
    lasts = np.array([ideal_s(job) for job in jobs])
    width = np.array([float(sum(job.gpus_per_node)) for job in jobs])
    edges = _edges(submit, lasts, reached_s, float(lasts @ width) / gpus)
    room = gpus * np.diff(edges)
    starts = np.concatenate([submit[:, None], np.broadcast_to(edges, (len(jobs), len(edges))),
                             edges[None, :] - lasts[:, None]], axis=1)  # fmt: skip
    starts = np.maximum(starts, submit[:, None])
    waits, ends = starts - submit[:, None], starts + lasts[:, None]
    rows, prices = np.arange(len(jobs)), np.zeros(len(room))
    best, eagerness, since = 0.0, 1.0, 0
    for _ in range(ROUNDS):
        paid = np.concatenate([[0.0], np.cumsum(prices * np.diff(edges))])
        costs = waits + width[:, None] * (np.interp(ends, edges, paid)
                                          - np.interp(starts, edges, paid))  # fmt: skip
        at = costs.argmin(axis=1)
        bound = float(costs[rows, at].sum() - (prices * room).sum())
        since = 0 if bound > best else since + 1
        best = max(best, bound)
        if since == 5:
            eagerness, since = eagerness / 2, 0
        over = _used(edges, starts[rows, at], ends[rows, at], width) - room
        size = float((over * over / room).sum())
        missing = reached_s * len(jobs) - bound
        if missing <= 0 or size <= 0:
            break
        prices = np.maximum(0.0, prices + eagerness * missing / size * over / room)
    return best / len(jobs)


def _edges(submit: np.ndarray, lasts: np.ndarray, reached_s: float, busy_s: float) -> np.ndarray:
    """Where prices change: as dense as submits and likely ends are; `busy_s`: all work's time."""
    late = submit + reached_s
    at_work = submit.min() + np.linspace(0, busy_s, len(submit))
    times = np.concatenate([submit, submit + lasts, late, late + lasts, at_work])
    return np.unique(np.quantile(times, np.linspace(0, 1, STEPS)))


def _used(edges: np.ndarray, starts: np.ndarray, ends: np.ndarray, width: np.ndarray) -> np.ndarray:
    """GPU time in use in each step."""
    before = (np.clip(edges, starts[:, None], ends[:, None]) - starts[:, None]).T @ width
    used: np.ndarray = np.diff(before)
    return used


def _of_pool(made: Workload) -> dict[str, float]:
    waits = [record.waited_s for record in one_pool(made).records]
    return {"wait_mean_s": fmean(waits), "wait_p99_s": quantile(waits, 0.99)}


def _of_told(made: Workload) -> dict[str, float]:
    run = Told(made.nodes, made.policy(OURS), made.site, made.speed).run(made.jobs)
    return row_of(run, made.nodes)


def _of_least(made: Workload) -> dict[str, float]:
    gpus = sum(topology.gpus for topology in made.nodes.values())
    reached_s = _of_pool(made)["wait_mean_s"]
    return {"wait_mean_s": least_mean_wait_s(made.jobs, gpus, made.speed.ideal_s, reached_s)}


#: Name -> its figures in a resampling.
FIGURES: Mapping[str, Callable[[Workload], dict[str, float]]] = {
    ONE_POOL: _of_pool, TOLD: _of_told, LEAST: _of_least,
}  # fmt: skip
