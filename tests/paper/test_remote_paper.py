"""The R queue's and DRMaestro's results: a slice of the synthetic year, and speedups.

Where ours are not the printed figures, the deviation stands here; docs/experiments.md has why.
"""

from __future__ import annotations

from statistics import fmean

import pytest

from simulation.experiments.drmaestro import gangs, runs
from simulation.experiments.rqueue import tsubame, workload
from simulation.experiments.rqueue.decreases import histograms, moments

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
    return {
        name: tsubame.figures(ended, base) | moments(ended, base) | histograms(ended, base) | idle
        for name, (ended, idle) in found.items()
    }


@pytest.mark.parametrize("name", [tsubame.R_QUEUE, tsubame.OURS])
def test_the_r_queue_waits_less_runs_hardly_longer_and_ends_sooner(queues, name):
    printed = tsubame.PAPER[tsubame.R_QUEUE]
    for metric, (least, most) in TIMES_THE_PRINTED.items():
        assert least < queues[name][metric] / printed[metric] < most, metric
    assert queues[name]["waiting_longer_percent"] < printed["waiting_longer_percent"]


@pytest.mark.parametrize("name", [tsubame.R_QUEUE, tsubame.OURS])
def test_the_decreases_are_spread_over_the_jobs_as_table_3_has_them(queues, name):
    """Lifetimes as waits (printed: 6,675 and 6,678 s); execution times by half to twice 32.25 s."""
    wait, execution, life = tsubame.TABLE_3[tsubame.NODES]
    found = queues[name]
    assert life[1] == pytest.approx(wait[1], rel=0.02)
    assert found["life_decrease_spread_s"] == pytest.approx(
        found["wait_decrease_spread_s"], rel=0.02
    )
    assert 0.5 < found["execution_decrease_spread_s"] / execution[1] < 2
    assert found["wait_decrease_spread_s"] > found["wait_decrease_s"] > 0


@pytest.mark.parametrize("name", [tsubame.R_QUEUE, tsubame.OURS])
def test_those_who_wait_longer_wait_no_longer_than_printed(queues, name):
    printed = tsubame.PAPER[tsubame.R_QUEUE]
    assert queues[name]["waiting_longer_s"] < printed["waiting_longer_s"]


@pytest.mark.parametrize("name", [tsubame.R_QUEUE, tsubame.OURS])
def test_many_run_longer_and_nobody_shorter(queues, name):
    """Figure 10: jobs left of 0 s; those right of it are the paper's steps, which are not here."""
    found = queues[name]
    longer = [
        found[f"execution_percent.{bin}"]
        for bin in ("under -100 s", "-100 to -10 s", "-10 to -1 s")
    ]
    assert sum(longer) > 1
    assert found["execution_percent.over 1 s"] == 0
    for time in tsubame.TIMES:
        shares = [value for key, value in found.items() if key.startswith(f"{time}_percent.")]
        assert sum(shares) == pytest.approx(100)


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


@pytest.mark.parametrize("line", [runs.WITHOUT, runs.WITH])
def test_a_plan_of_the_testbed_takes_less_than_a_second(line):
    """Figure 24: "in the order of sub-seconds in both cases", there with binding the jobs."""
    found = runs.simulated(runs.TESTBED, 1, runs.Choices(), line)
    assert 0 < found["plan_median_ms"] <= found["plan_p95_ms"] <= found["plan_longest_ms"] < 1000


def test_gangs_are_no_worse_off_than_with_algorithm_5_as_printed():
    """Of the makespan, to within 2 %; where all GPUs may be remote no job ever gets a part only."""
    found = gangs.run((1,)).measured
    bound_s = found[gangs.BOUND]["makespan_s"]
    for share in gangs.SHARES:
        printed, ours = (found[f"{name}, {share}"] for name in (gangs.PRINTED, gangs.OURS))
        assert bound_s < ours["makespan_s"] < 1.02 * printed["makespan_s"]
    longest, shortest = (
        found[f"{gangs.OURS}, {share}"]["makespan_s"]
        for share in ("no remote GPUs", "remote GPUs for all")
    )
    assert longest / shortest > 1.13, "gangs gain as much as the thesis's jobs of one GPU"
