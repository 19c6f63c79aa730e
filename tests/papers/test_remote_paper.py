"""The R queue's and DRMaestro's results: a slice of the synthetic year, and speedups.

The printed figures within a tolerance, or a bound; docs/reproduction.md has ours beside them.
"""

from __future__ import annotations

from statistics import fmean

import pytest

from papers.experiments.drmaestro import gangs, runs
from papers.experiments.rqueue import tsubame, workload
from papers.experiments.rqueue.decreases import histograms, moments

#: Enough jobs and few enough nodes for queues to form.
JOBS, NODES = 6_000, 380


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
    """The year decides how much there is to gain, and the paper's log is not public."""
    printed, found = tsubame.PAPER[tsubame.R_QUEUE], queues[name]
    assert found["wait_decrease_percent"] >= printed["wait_decrease_percent"]
    assert 0 < found["execution_increase_percent"] < 0.2
    assert 0.5 < found["life_decrease_percent"] / printed["life_decrease_percent"] < 2
    assert found["waiting_longer_percent"] < printed["waiting_longer_percent"]


@pytest.mark.long("half a minute")
def test_no_queue_waits_less_than_one_pool_of_all_gpus(queues):
    pooled, _ = tsubame.simulated(tsubame.BOUND, workload.jobs(1, JOBS), NODES)
    least_s = fmean(job.wait_s for job in pooled)
    assert all(row["wait_mean_s"] >= least_s for row in queues.values())


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


@pytest.mark.parametrize("scenario", [runs.TESTBED, runs.NETWORK], ids=lambda one: one.name)
def test_with_ten_of_sixteen_gpus_in_reach_drmaestros_speedup_is_the_printed_one(scenario):
    """Within 8 %: the planner's two solvers break ties otherwise, which moves it by 2 %."""
    printed = scenario.paper[runs.WITH]["speedup"]
    assert speedup(scenario, 10, runs.WITH) == pytest.approx(printed, rel=0.08)


def test_with_the_printed_six_it_is_above_it_and_below_the_bound():
    """Remote GPUs are as fast here as in section 3.3.3, which leaves more to gain."""
    printed = runs.TESTBED.paper[runs.WITH]["speedup"]
    assert printed <= speedup(runs.TESTBED, 6, runs.WITH)
    for seed in (1, 2, 3):
        choices = runs.Choices(6)
        bound_s = runs.bound_s(4, runs.asked(runs.TESTBED, seed, choices, runs.WITH))
        found = runs.simulated(runs.TESTBED, seed, choices, runs.WITH)
        assert found["makespan_s"] >= bound_s


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
