"""rqueue-openb: the queues on Alibaba's OpenB trace, which has CPUs, memory and parts of GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from papers.experiments import Result, openb
from papers.experiments.experiment import averaged
from papers.experiments.rqueue.decreases import moments
from papers.experiments.rqueue.middleware import PAPER_WIRES, PAPERS, told, wires_of
from papers.experiments.rqueue.tsubame import G_QUEUE, on_real_log
from papers.experiments.rqueue.workload import drawn_work
from papers.simulators.queued_loans import QueuedLoanJob
from policies import Request
from policies.remote import RemoteJob
from policies.remote.r_queue import NetworkSpeeds
from simulation.core.steps import each

NOTES = (
    "7,228 tasks of 34 days of Alibaba's OpenB trace (Weng et al., ATC'23, Apache-2.0), first come,"
    " first served, on a few of its 1,213 nodes, for all of them together run 20 GPUs' work. The"
    " paper has no such experiment.",
    "A task that asks for a part of a GPU takes a whole one, or is left out (--fractions): no two"
    " jobs share a GPU here. Tasks without GPUs are left out, since they are the V queue's.",
    "CPUs and memory are the trace's and bound a node. It has no transfers: those are drawn as in"
    " Table I, memory from 0.5 to 11 GB.",
    "Changes are over nodes shared with nothing remote, which is what the trace's cluster does.",
)


def run(
    seeds: Sequence[int], nodes: str = "8", fractions: str = "whole", middleware: str = PAPERS
) -> Result:
    """The trace under every queue, against nodes shared and nothing remote."""
    rows: dict[str, list[dict[str, float]]] = {}
    wires = wires_of(middleware)
    for seed in each(seeds):
        jobs = log(seed, int(nodes), fractions, wires)
        runs = on_real_log(jobs, lambda: openb.nodes(int(nodes)), wires)
        for name, ended, base, figures in runs:
            spread = {} if name == G_QUEUE else moments(ended, base)
            rows.setdefault(name, []).append(figures | spread)
    return Result("rqueue-openb", tuple(seeds), averaged(rows), {}, (*NOTES, *told(middleware)))


def log(
    seed: int, node_count: int, fractions: str, wires: NetworkSpeeds = PAPER_WIRES
) -> list[QueuedLoanJob]:
    """The trace's tasks with GPUs, with transfers drawn for them."""
    draw = np.random.default_rng(seed)
    jobs = []
    for number, task in enumerate(openb.tasks(openb.nodes(node_count), fractions)):
        if not task.gpus:
            continue
        asked = RemoteJob(
            Request((task.gpus,), job_id=number), cpus=task.cpus, memory_mb=task.memory_mb
        )
        jobs.append(QueuedLoanJob(task.submit_s, asked, drawn_work(draw, task.duration_s, wires)))
    return jobs
