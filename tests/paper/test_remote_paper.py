"""The R queue's and DRMaestro's results: signs on a slice of the synthetic year, and speedups.

What is not reproduced is in docs/experiments.md: the wait falls by twice as much as in the paper,
and idle GPUs on nodes in use rise with the paper's donors.
"""

from __future__ import annotations

from statistics import fmean

import pytest

from simulation.experiments.drmaestro import runs
from simulation.experiments.rqueue import tsubame, workload

#: Enough jobs and few enough nodes for queues to form.
JOBS, NODES = 12_000, 380


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
    assert queues[name]["wait_decrease_percent"] > printed["wait_decrease_percent"]
    assert 0 < queues[name]["execution_increase_percent"] < 0.15
    assert queues[name]["life_decrease_percent"] > 0
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


@pytest.mark.parametrize(
    ("scenario", "in_reach", "tolerance"),
    [(runs.TESTBED, 10, 0.03), (runs.NETWORK, 10, 0.08), (runs.TESTBED, 6, 0.1)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_drmaestros_speedup_is_the_printed_one_within_a_tolerance(scenario, in_reach, tolerance):
    """Ten of sixteen GPUs in reach without remote ones fit both; the thesis prints six for one."""
    printed = scenario.paper[runs.WITH]["speedup"]
    assert speedup(scenario, in_reach, runs.WITH) == pytest.approx(printed, rel=tolerance)
