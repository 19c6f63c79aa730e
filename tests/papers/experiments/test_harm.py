"""The workloads that are to show harm, what a run of one comes to, and how two are compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from papers.experiments.harm.intervals import half_width, ratio
from papers.experiments.harm.judging import beside, row_of, run_one
from papers.experiments.harm.traces import TRACES
from papers.experiments.harm.workloads import A_DAY_S, GENERATED, Drawn
from policies import Placement
from simulation.core.jobs import SimJob, offered_load
from simulation.core.occupancy import FreeCounts
from simulation.core.record import Record, SimulatedRun
from simulation.models.speed import PlacedJob, Speed


def gpus_of(drawn):
    return sum(topology.gpus for topology in drawn.nodes.values())


@pytest.mark.parametrize("name", GENERATED)
def test_a_seed_gives_the_same_jobs_again_at_the_load_and_all_of_them_fit(name):
    workload = GENERATED[name]
    drawn = workload.drawn(1, 200)
    assert drawn.jobs == workload.drawn(1, 200).jobs != workload.drawn(2, 200).jobs
    assert offered_load(drawn.jobs, gpus_of(drawn)) == pytest.approx(workload.load, abs=0.001)
    empty = FreeCounts(topology.gpus for topology in drawn.nodes.values())
    assert all(empty.fits(job.gpus_per_node) for job in drawn.jobs)
    assert {job.gpus_per_node for job in drawn.jobs} == set(workload.sizes)


@pytest.mark.parametrize("name", [name for name in TRACES if not name.startswith("philly")])
def test_a_seed_of_a_trace_gives_the_same_jobs_again_at_the_load_and_all_of_them_fit(name):
    drawn, again, other = (TRACES[name].drawn(seed, 200) for seed in (1, 1, 2))
    assert drawn.jobs == again.jobs != other.jobs
    made = offered_load(drawn.jobs, gpus_of(drawn), ideal_s=drawn.speed.ideal_s)
    assert made == pytest.approx(TRACES[name].load, abs=0.001)
    empty = FreeCounts(topology.gpus for topology in drawn.nodes.values())
    assert all(empty.fits(job.gpus_per_node) for job in drawn.jobs)
    assert len({job.submit_s for job in drawn.jobs}) > 150


def test_seeds_of_a_log_have_its_jobs_at_other_moments():
    """Within an hour of each other, before the load is set: their order is hardly changed."""
    jobs = [TRACES["openb"].source(seed, 0).jobs for seed in (1, 2)]
    took = [sorted(job.duration_s for job in some) for some in jobs]
    assert took[0] == took[1]
    assert [job.duration_s for job in jobs[0]] != [job.duration_s for job in jobs[1]]


def test_what_jobs_say_changes_neither_them_nor_what_they_take():
    told, untold = GENERATED["dgx1v-told"].drawn(3, 200), GENERATED["dgx1v"].drawn(3, 200)
    assert [replace(job, hint="") for job in told.jobs] == untold.jobs
    assert all(bool(job.hint) == (job.gpus_per_node != (1,)) for job in told.jobs)
    for job in told.jobs:
        [count] = job.gpus_per_node
        placed = PlacedJob(job, {"n001": tuple(range(count))})
        silent = replace(placed, job=replace(job, hint=""))
        took_s = told.speed.full_s(placed, told.nodes, ())
        assert took_s == untold.speed.full_s(silent, untold.nodes, ())


@pytest.mark.parametrize(("name", "is_felt"), [("dgx1v", True), ("dgx1v-quiet", False)])
def test_a_poor_pair_is_felt_unless_jobs_are_quiet(name, is_felt):
    """GPUs 0 and 5 of a DGX-1V have no NVLink between them."""
    drawn = GENERATED[name].drawn(1, 200)
    pairs = [job for job in drawn.jobs if job.gpus_per_node == (2,)]
    for job in pairs:
        took_s = drawn.speed.full_s(PlacedJob(job, {"n001": (0, 5)}), drawn.nodes, ())
        assert (took_s > job.duration_s) is is_felt


@pytest.mark.parametrize(
    ("name", "least", "most", "is_below"),
    [("dgx1v", 1, 4, False), ("dgx1v-limits-off", 0.1, 10, True)],
)
def test_limits_are_so_many_times_the_run_time(name, least, most, is_below):
    jobs = GENERATED[name].drawn(1, 300).jobs
    factors = [job.walltime_s / job.duration_s for job in jobs if job.walltime_s > 60]
    assert least <= min(factors) < most / 2 < max(factors) <= most
    assert (min(factors) < 1) is is_below


def test_where_nobody_says_anything_the_limit_is_the_partitions():
    assert {job.walltime_s for job in GENERATED["dgx1v-day"].drawn(1, 300).jobs} == {A_DAY_S}


def test_a_burst_is_wide_jobs_of_one_user_at_one_moment():
    jobs = GENERATED["dgx1v-bursts"].drawn(1, 600).jobs
    moments = Counter(job.submit_s for job in jobs)
    bursts = [
        [job for job in jobs if job.submit_s == at] for at, count in moments.items() if count > 1
    ]
    assert bursts
    for burst in bursts:
        assert len({job.user for job in burst}) == 1
        assert all(job.gpus_per_node[0] >= 4 for job in burst)
    assert max(Counter(job.submit_s for job in GENERATED["dgx1v"].drawn(1, 600).jobs).values()) == 1


def test_a_heavy_tail_has_longer_jobs():
    longest = [
        max(job.duration_s for job in GENERATED[name].drawn(1, 600).jobs)
        for name in ("dgx1v-tail", "dgx1v")
    ]
    assert longest[0] > 2 * longest[1]


def test_figures_of_a_run_by_hand():
    """Of eleven jobs the first one does not count, and waited for 100 s."""
    nodes = GENERATED["dgx1v"].nodes()
    jobs = [SimJob(number, (1,), 10.0, 0.0, user="a") for number in range(1, 10)]
    jobs += [SimJob(10, (8,), 10.0, 0.0, user="b"), SimJob(11, (2,), 10.0, 0.0, user="b")]

    def record(job, waited_s, gpus, postponed=0):
        placement = Placement({"n001": gpus}, "test", "")
        return Record(job, waited_s, waited_s + 10, placement, postponed)

    records = [record(jobs[0], 100.0, (0,)), *(record(job, 0.0, (0,)) for job in jobs[1:9])]
    records += [record(jobs[9], 30.0, tuple(range(8))), record(jobs[10], 10.0, (0, 5), 1)]
    row = row_of(SimulatedRun("test", records, gpus=48), Drawn(nodes, jobs, Speed()))
    poor = row["share"] * 2 - 1
    assert row["wait_s"] == 4.0
    assert row["cold_wait_s"] == pytest.approx(140 / 11)
    assert (row["wait_p95_s"], row["wide_wait_s"], row["turnaround_s"]) == (30.0, 30.0, 14.0)
    assert row["in_vain"] == 0.1
    assert row["unfair"] == 5.0, "b waits for 20 s on average, all for 4"
    assert 0 < poor < 0.5, "eight GPUs have the ideal, 0 and 5 no NVLink"
    assert row["share on dgx1v"] == row["share"]


def test_a_run_can_be_repeated_and_policies_have_the_same_jobs():
    one = run_one("dgx1v", "horizon", 1, 100)
    assert one == run_one("dgx1v", "horizon", 1, 100)
    other = run_one("dgx1v", "stock", 1, 100)
    assert other["share"] < one["share"]
    assert beside([one], [other], "turnaround_s", 0.05).ratio < 1


def test_a_ratio_of_means_has_the_interval_of_what_pairs_depart_from_it():
    found, half = ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0], 0.05)
    assert (found, half) == (2.0, 0.0), "each pair has the same ratio"
    found, half = ratio([3.0, 5.0], [1.0, 3.0], 0.05)
    assert found == 2.0
    assert half == pytest.approx(half_width([1.0, -1.0], 0.05) / 2)
    assert ratio([0.0, 0.0], [0.0, 0.0], 0.05) == (1.0, 0.0)
    assert ratio([0.0, 1.0], [0.0, 0.0], 0.05)[0] == float("inf")
