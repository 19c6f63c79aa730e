"""The bounds of the proof hold against every schedule, and against what is run."""

from __future__ import annotations

from itertools import permutations
from random import Random
from statistics import fmean

import pytest

from simulation.core.jobs import SimJob
from simulation.experiments.proof import bounds
from simulation.experiments.proof.cells import TRACES, workload
from simulation.models.slurm import SlurmSimulator


def least_by_trying(jobs, gpus):
    """The least mean wait of all schedules: each order, every job as early as it goes."""
    found = []
    for order in permutations(jobs):
        free_s, now_s, waits = [0.0] * gpus, 0.0, []
        for job in order:
            free_s.sort()
            count = sum(job.gpus_per_node)
            # Of schedules whose starts are in this order, none starts a job sooner.
            now_s = max(now_s, job.submit_s, free_s[count - 1])
            free_s = [now_s + job.duration_s] * count + free_s[count:]
            waits.append(now_s - job.submit_s)
        found.append(fmean(waits))
    return min(found)


def drawn(seed, count=6, gpus=4):
    draw, jobs = Random(seed), []
    for number in range(count):
        jobs.append(SimJob(number, (draw.randint(1, gpus),), float(draw.randint(1, 50)),
                           float(draw.randint(0, 40))))  # fmt: skip
    return jobs


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_has_a_smaller_mean_wait_than_the_least(seed):
    jobs = drawn(seed)
    reached = least_by_trying(jobs, 4)
    bound = bounds.least_mean_wait_s(jobs, 4, lambda job: job.duration_s, 2 * reached)
    assert 0 <= bound <= reached + 1e-6


def test_the_least_is_near_to_what_can_be_reached():
    jobs = [SimJob(number, (4,), 10.0 * (number + 1)) for number in range(5)]
    reached = least_by_trying(jobs, 4)
    bound = bounds.least_mean_wait_s(jobs, 4, lambda job: job.duration_s, reached)
    assert reached == fmean([0, 10, 30, 60, 100])
    assert bound > 0.8 * reached


@pytest.mark.parametrize("trace", ["mapa-dgx1v", "sc17", "genie"])
def test_in_one_pool_all_jobs_take_their_best_time_and_no_more_gpus_than_there_are(trace):
    made = workload(trace, 90, 1)
    best_s = {job.job_id: made.speed.ideal_s(job) for job in made.jobs}
    records = bounds.one_pool(made).records
    assert len(records) == len(made.jobs)
    for record in records:
        assert record.end_s - record.start_s == pytest.approx(best_s[record.job.job_id])
    changes = sorted(
        (at_s, step * sum(record.job.gpus_per_node))
        for record in records for at_s, step in ((record.start_s, 1), (record.end_s, -1))
    )  # fmt: skip
    used = most = 0
    for _, change in changes:
        used += change
        most = max(most, used)
    assert most <= sum(topology.gpus for topology in made.nodes.values())


def test_the_least_is_below_what_stock_slurm_and_one_pool_reach():
    made = workload("mapa-a100-bridged", 90, 1)
    least = bounds.FIGURES[bounds.LEAST](made)["wait_mean_s"]
    pool = bounds.FIGURES[bounds.ONE_POOL](made)["wait_mean_s"]
    run = SlurmSimulator(made.nodes, made.policy("stock"), made.site, made.speed).run(made.jobs)
    assert 0 < least < pool < fmean(record.waited_s for record in run.records)


@pytest.mark.parametrize("trace", TRACES)
def test_no_job_runs_shorter_than_its_best_time(trace):
    made = workload(trace, 90, 2)
    run = SlurmSimulator(made.nodes, made.policy("mapa"), made.site, made.speed).run(made.jobs)
    assert min(record.slowdown for record in run.records) > 1 - 1e-9


def test_who_is_told_sees_true_ends_and_run_times():
    made = workload("mapa-dgx1v", 90, 1)
    policy, seen = made.policy("horizon"), []
    place = policy.place
    policy.place = lambda request, cluster: seen.append(cluster.ahead) or place(request, cluster)
    bounds.Told(made.nodes, policy, made.site, made.speed).run(made.jobs)
    lengths = {round(made.speed.ideal_s(job), 6) for job in made.jobs}
    assert any(ahead.queue for ahead in seen)
    for ahead in seen:
        assert not ahead.used
        assert {round(one.lasts_s, 6) for one in ahead.queue} | {round(ahead.lasts_s, 6)} <= lengths
        ends = [release.end_s for release in ahead.releases]
        assert ends == sorted(ends)
