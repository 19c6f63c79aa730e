"""The R queue's and DRMaestro's results: a slice of the synthetic year, and speedups.

Where ours are not the printed figures, the deviation stands here; docs/experiments.md has why.
"""

from __future__ import annotations

from statistics import fmean

import pytest

from simulation.experiments.drmaestro import runs
from simulation.experiments.rqueue import tsubame, workload

#: Enough jobs and few enough nodes for queues to form.
JOBS, NODES = 6_000, 380
#: Ours are so many times the printed figures: the year decides how much there is to gain, and the
#: paper's log is not public.
TIMES_THE_PRINTED = {
    "wait_decrease_percent": (2.4, 2.6),
    "execution_increase_percent": (2.5, 5.0),
    "life_decrease_percent": (1.2, 1.5),
}


@pytest.fixture(scope="module")
def queues():
    log = workload.jobs(1, JOBS)
    found = {
        name: tsubame.simulated(name, log, NODES)
        for name in (tsubame.G_QUEUE, tsubame.SHARED, tsubame.R_QUEUE, tsubame.OURS)
    }
    base = found[tsubame.G_QUEUE][0]
    return {name: tsubame.figures(ended, base) | idle for name, (ended, idle) in found.items()}


@pytest.mark.parametrize("name", [tsubame.R_QUEUE, tsubame.OURS])
def test_the_r_queue_waits_less_runs_hardly_longer_and_ends_sooner(queues, name):
    printed = tsubame.PAPER[tsubame.R_QUEUE]
    for metric, (least, most) in TIMES_THE_PRINTED.items():
        assert least < queues[name][metric] / printed[metric] < most, metric
    assert queues[name]["waiting_longer_percent"] < printed["waiting_longer_percent"]


def test_sharing_nodes_without_remote_gpus_brings_a_part_of_that(queues):
    shared = queues[tsubame.SHARED]["wait_decrease_percent"]
    assert 0 < shared < queues[tsubame.OURS]["wait_decrease_percent"]


def test_local_first_leaves_fewer_gpus_idle_than_the_g_queue_on_nodes_that_host_a_task(queues):
    for metric in ("idle_gpus_hosting", "idle_gpus_wanted"):
        assert queues[tsubame.OURS][metric] < queues[tsubame.G_QUEUE][metric]


def test_local_first_needs_remote_gpus_for_fewer_jobs_than_the_papers_order(queues):
    assert 0 < queues[tsubame.OURS]["remote_percent"] < queues[tsubame.R_QUEUE]["remote_percent"]


def speedup(scenario, in_reach, line):
    choices = runs.Choices(in_reach)
    return fmean(
        runs.simulated(scenario, seed, choices, runs.WITHOUT)["makespan_s"]
        / runs.simulated(scenario, seed, choices, line)["makespan_s"]
        for seed in (1, 2, 3)
    )


#: (scenario, GPUs in reach without remote ones, ours less the printed speedup, what the planner's
#: two solvers differ by in ties): six of sixteen GPUs are printed, and gain more here, for remote
#: GPUs are as fast as in section 3.3.3; ten are ours, and come nearest.
DEVIATIONS = [
    (runs.TESTBED, 6, 0.088, 0.005),
    (runs.TESTBED, 10, -0.007, 0.003),
    (runs.NETWORK, 10, -0.065, 0.025),
]


@pytest.mark.parametrize(
    ("scenario", "in_reach", "deviation", "ties"),
    DEVIATIONS,
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_drmaestros_speedup_deviates_from_the_printed_one_as_written(
    scenario, in_reach, deviation, ties
):
    printed = scenario.paper[runs.WITH]["speedup"]
    found = speedup(scenario, in_reach, runs.WITH)
    assert found - printed == pytest.approx(deviation, abs=ties)
