"""drmaestro-openb: DRMaestro on Alibaba's OpenB trace, which has CPUs, memory and parts of GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from papers.experiments import Result, openb
from papers.experiments.drmaestro.runs import AWARE, WITH, WITHOUT, measured, told
from papers.experiments.drmaestro.workload import GOAL, network_of
from papers.experiments.experiment import averaged
from papers.experiments.rqueue.middleware import PAPERS
from papers.simulators.planned_loans import PlannedJob, PlannedLoanSimulator
from policies import Request
from policies.remote import RemoteJob
from policies.remote.drmaestro import RODINIA, Costs, DRMaestro
from simulation.core.steps import each

ROUND_S = 60.0
NOTES = (
    "7,228 tasks of 34 days of Alibaba's OpenB trace (Weng et al., ATC'23, Apache-2.0) on a few of"
    " its nodes, for all of them together run 20 GPUs' work; a round each minute. The thesis has no"
    " such experiment.",
    "A task that asks for a part of a GPU takes a whole one, or is left out (--fractions): no two"
    " jobs share a GPU here. Tasks of CPUs alone take their part, as the thesis's first jobs do.",
    "The trace does not say how tasks feel the network: each has the shares of one of Rodinia's"
    " applications, drawn uniformly.",
)


def run(
    seeds: Sequence[int], nodes: str = "8", fractions: str = "whole", middleware: str = PAPERS
) -> Result:
    """The trace with remote GPUs, without, and with network-aware costs."""
    rows: dict[str, list[Mapping[str, float]]] = {WITHOUT: [], WITH: [], AWARE: []}
    for seed in each(seeds):
        for line, per_seed in each(rows.items()):
            asked = log(seed, int(nodes), fractions, line, middleware)
            planner = DRMaestro(Costs(network_aware=line == AWARE))
            simulator = PlannedLoanSimulator(openb.nodes(int(nodes)), planner, interval_s=ROUND_S)
            per_seed.append(measured(simulator, simulator.run(asked), GOAL))
    return Result("drmaestro-openb", tuple(seeds), averaged(rows), {}, (*NOTES, *told(middleware)))


def log(
    seed: int, node_count: int, fractions: str, line: str, middleware: str = PAPERS
) -> list[PlannedJob]:
    """The trace's tasks; applications are drawn alike for every line."""
    asked = openb.tasks(openb.nodes(node_count), fractions)
    names = np.random.default_rng(seed).choice(tuple(RODINIA), size=len(asked))
    jobs = []
    for task, name in zip(asked, names, strict=True):
        network = network_of(str(name), middleware)
        job = RemoteJob(
            Request((task.gpus,)),
            cpus=task.cpus,
            memory_mb=task.memory_mb,
            sensitivity=network.sensitivity,
            max_slowdown=GOAL if line == AWARE else float("inf"),
            remote_allowed=line != WITHOUT,
        )
        jobs.append(PlannedJob(task.submit_s, job, task.duration_s, network))
    return jobs
