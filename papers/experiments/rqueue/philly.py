"""rqueue-philly: the same queues on Microsoft's Philly trace, a real log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from papers.experiments import Result, philly
from papers.experiments.experiment import averaged
from papers.experiments.rqueue.middleware import PAPER_WIRES, PAPERS, told, wires_of
from papers.experiments.rqueue.tsubame import on_real_log
from papers.experiments.rqueue.workload import drawn_work
from papers.simulators.queued_loans import QueuedLoanJob
from policies import Request
from policies.remote import NodeCapacity, RemoteJob
from policies.remote.r_queue import NetworkSpeeds
from simulation.core.steps import each

NOTES = (
    "15,000 jobs of Philly without the first 47 days (Jeon et al., ATC'19, CC BY 4.0), first come,"
    " first served on 231 nodes of eight GPUs and 321 of two. The paper has no such experiment.",
    "The log has no CPUs or memory that could bound a node, and no transfers: those are drawn as in"
    " Table I, memory from 0.5 to 11 GB.",
    "Under the G queue a job of one GPU has a node of eight for itself if that is the next; changes"
    " are therefore over nodes shared with nothing remote.",
)


#: Shares of the cluster's nodes, of both kinds alike.
SHARES = {"all": 1.0, "half": 0.5, "third": 1 / 3}


def free_nodes(share: float = 1.0) -> dict[str, NodeCapacity]:
    """Free nodes, bound by their GPUs alone."""
    endless = float("inf")
    cluster = philly.cluster()
    kinds = ("eight", "pair")
    named = [sorted(name for name in cluster if name.startswith(kind)) for kind in kinds]
    kept = [name for names in named for name in names[: round(share * len(names))]]
    return {
        name: NodeCapacity(name, (1 << cluster[name].gpus) - 1, endless, endless) for name in kept
    }


def log(seed: int, wires: NetworkSpeeds = PAPER_WIRES) -> list[QueuedLoanJob]:
    """The trace's jobs, with transfers drawn for them."""
    draw = np.random.default_rng(seed)
    jobs = []
    for job in philly.trace().jobs:
        jobs.append(
            QueuedLoanJob(
                job.submit_s,
                RemoteJob(Request(job.gpus_per_node, job_id=job.job_id), cpus=0),
                drawn_work(draw, max(1.0, job.duration_s), wires),
            )
        )
    return jobs


def run(seeds: Sequence[int], nodes: str = "all", middleware: str = PAPERS) -> Result:
    """The trace under every queue, against nodes shared and nothing remote."""
    rows: dict[str, list[dict[str, float]]] = {}
    wires = wires_of(middleware)
    for seed in each(seeds):
        jobs = log(seed, wires)
        for name, _, _, figures in on_real_log(jobs, lambda: free_nodes(SHARES[nodes]), wires):
            rows.setdefault(name, []).append(figures)
    return Result("rqueue-philly", tuple(seeds), averaged(rows), {}, (*NOTES, *told(middleware)))
