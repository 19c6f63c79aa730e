"""The R queue's smaller experiments: fifty jobs on five nodes, and the Philly trace."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

from papers.experiments import experiments
from papers.experiments.drmaestro.workload import network_of
from papers.experiments.rqueue import occupancy, philly, workload
from papers.experiments.rqueue.middleware import found, told, wires_of
from papers.experiments.rqueue.tsubame import (
    G_QUEUE,
    OURS,
    PRINTED,
    QUEUES,
    R_QUEUE,
    SHARED,
    averaged,
    figures,
)
from papers.experiments.rqueue.workload import nodes
from papers.simulators.loans import Ended
from papers.simulators.queued_loans import QueuedLoanJob, QueuedLoanSimulator
from policies.remote.drmaestro import RODINIA
from policies.remote.r_queue import NetworkSpeeds, execution_s
from simulation.errors import SimulationError


@pytest.fixture(scope="module")
def busy():
    return occupancy.busy_period(1)


def test_the_pool_has_the_nodes_gpus_and_any_amount_of_the_rest():
    pool = workload.pool(5)["pool"]
    assert pool.free.bit_count() == sum(node.free.bit_count() for node in nodes(5).values()) == 15
    assert pool.cpus == pool.memory_mb == float("inf")


@pytest.mark.parametrize("time_s", [0.5, 10.0, 5000.0])
def test_a_drawn_job_takes_its_time_when_it_is_alone(time_s):
    drawn = workload.work(time_s, 11.0, 1000.0, 1000.0)
    assert execution_s(drawn, NetworkSpeeds(), False) == pytest.approx(time_s)


def test_fifty_jobs_that_fit_five_nodes_come_within_ten_days(busy):
    assert len(busy) == 50
    assert all(0 <= job.submit_s < 10 * 86_400 for job in busy)
    assert all(len(job.job.request.gpus_per_node) <= 4 for job in busy)
    assert busy == sorted(busy, key=lambda job: job.submit_s)


def test_seconds_with_more_and_fewer_jobs_are_counted_until_the_queues_last_end(busy):
    """Two jobs of 10 s: one after the other before, together now."""
    log = [QueuedLoanJob(0.0, busy[0].job, busy[0].work)] * 2
    before = [Ended(0.0, 10.0, 10.0, 0), Ended(10.0, 10.0, 10.0, 0)]
    now = [Ended(0.0, 10.0, 10.0, 0), Ended(0.0, 10.0, 10.0, 0)]
    assert occupancy.compared(log, now, before) == (10, 0, 10, 10)
    assert occupancy.compared(log, before, now) == (10, 10, 0, 20)


def test_the_picture_has_a_line_per_gpu_and_every_gpu_second_of_every_job(busy):
    simulator = QueuedLoanSimulator(nodes(5), QUEUES[R_QUEUE])
    ended = simulator.run(busy)
    lines = occupancy.drawing(busy, ended, simulator).splitlines()
    assert len(lines) == 15
    assert {len(line) for line in lines} == {len("t000:0 ") + occupancy.WIDTH}
    longest = max(range(50), key=lambda number: ended[number].execution_s)
    sign = occupancy._SIGNS[longest]
    gpus = sum(busy[longest].job.request.gpus_per_node)
    assert sum(sign in line.split()[1] for line in lines) == gpus


def test_the_plot_has_a_block_for_every_gpu_of_every_job_and_no_gpu_twice(busy):
    simulator = QueuedLoanSimulator(nodes(5), QUEUES[R_QUEUE])
    found = occupancy.blocks(busy, simulator.run(busy), simulator)
    assert len(found) == sum(sum(job.job.request.gpus_per_node) for job in busy)
    for row in range(15):
        held = sorted((start, end) for gpu, start, end, _ in found if gpu == row)
        assert all(end <= start + 1e-6 for (_, end), (start, _) in pairwise(held))


def test_philly_is_replayed_on_nodes_of_eight_and_of_two_gpus():
    assert sum(room.free.bit_count() for room in philly.free_nodes().values()) == 2490
    half = philly.free_nodes(0.5)
    assert sorted({room.free.bit_count() for room in half.values()}) == [2, 8]
    assert len(half) == 116 + 160


def test_remote_gpus_shorten_the_wait_on_a_slice_of_philly():
    jobs = philly.log(1)[:600]
    waits = {}
    for name in (SHARED, R_QUEUE, OURS):
        ended = QueuedLoanSimulator(philly.free_nodes(0.1), QUEUES[name]).run(jobs)
        waits[name] = sum(job.wait_s for job in ended)
    assert waits[OURS] < waits[SHARED]
    assert waits[R_QUEUE] < waits[SHARED]


def test_to_the_letter_only_processes_of_one_gpu_leave_whole_nodes():
    """The first donor ends figure 6's loop; all else starts as under the G queue."""
    both = workload.jobs(1)[:6000]
    log = [job for job in both if set(job.job.request.gpus_per_node) == {2}]
    runs = {n: QueuedLoanSimulator(nodes(64), QUEUES[n]).run(log) for n in (G_QUEUE, PRINTED)}
    assert runs[PRINTED] == runs[G_QUEUE]
    log = [job for job in both if set(job.job.request.gpus_per_node) == {1}]
    runs = {n: QueuedLoanSimulator(nodes(64), QUEUES[n]).run(log) for n in (R_QUEUE, PRINTED)}
    assert runs[PRINTED] == runs[R_QUEUE]
    assert any(job.remote_gpus for job in runs[PRINTED])


def test_figures_are_shares_of_what_the_g_queue_had():
    base = [Ended(100.0, 100.0, 100.0, 0), Ended(300.0, 100.0, 100.0, 0)]
    ended = [Ended(0.0, 110.0, 100.0, 2), Ended(302.0, 120.0, 100.0, 0)]
    assert figures(ended, base) == {
        "wait_mean_s": 151.0,
        "execution_mean_s": 115.0,
        "life_mean_s": 266.0,
        "wait_decrease_percent": pytest.approx(24.5),
        "execution_increase_percent": pytest.approx(15.0),
        "life_decrease_percent": pytest.approx(100 * 34 / 300),
        "waiting_longer_percent": 50.0,
        "remote_percent": 50.0,
        "execution_longest_added_s": 20.0,
    }


def test_figures_of_several_seeds_are_means_with_their_deviation():
    assert averaged({"a": [{"x": 1.0}, {"x": 3.0}]}) == {
        "a": {"x": 2.0, "x_sd": pytest.approx(2**0.5)}
    }
    assert averaged({"a": [{"x": 1.0}]}) == {"a": {"x": 1.0}}


def alone_s(log):
    return np.array([execution_s(job.work, NetworkSpeeds(), False) for job in log])


def test_no_drawn_job_takes_more_than_sixty_usual_ones_would():
    times = alone_s(workload.jobs(1, 6000, workload.YEARS["implied"]))
    assert times.max() == pytest.approx(60 * np.median(times), rel=0.1)
    assert times.mean() == pytest.approx(15_148, rel=0.1)


def test_the_drawn_year_leaves_the_papers_gpus_idle():
    log = workload.jobs(1)
    times = alone_s(log)
    idle = sum(
        took * sum(3 - gpus for gpus in job.job.request.gpus_per_node)
        for job, took in zip(log, times, strict=True)
    )
    assert idle / (365 * 86_400) == pytest.approx(78.02, rel=1e-3)
    assert times.max() == 96 * 3600


@pytest.mark.parametrize("middleware", ["paper", "measured"])
def test_a_drawn_job_takes_its_time_when_it_is_alone_whatever_was_measured(middleware):
    wires = wires_of(middleware)
    drawn = workload.work(5000.0, 11.0, 1000.0, 90_000.0, wires)
    assert execution_s(drawn, wires, False) == pytest.approx(5000.0)
    added_s = execution_s(drawn, wires, True) - 5000.0
    lent = wires.rcuda_latency_s + wires.net_latency_s - wires.gpu_latency_s
    assert added_s > 90_000 * lent > 0


def test_the_measured_sample_says_when_and_where_it_was_measured():
    sample = found("measured")
    assert sample.preset == "pocl"
    assert re.search(r"20\d\d-\d\d-\d\d, .*cores", sample.where)
    assert sample.remote.call_s > sample.local.call_s
    assert sample.remote.gb_s < sample.local.gb_s
    [note] = told("measured")
    assert sample.where in note
    assert told("paper") == ()


def test_a_sites_own_file_counts_and_what_is_none_is_refused_in_a_line(tmp_path):
    """Remote GPUs as quick as local ones cost nothing; a file without figures is told."""
    own = tmp_path / "measured.yaml"
    side = "{call_s: 1.0e-3, gb_s: 7.0, kernel_s: 0.1, gpu_gb_s: 171.0, shared: 0.0}"
    own.write_text(f"preset: echo\nlocal: {side}\nremote: {side}\n")
    wires = wires_of(str(own))
    work = workload.work(5000.0, 11.0, 0.0, 90_000.0, wires)
    assert execution_s(work, wires, True, 1) == pytest.approx(execution_s(work, wires, False, 1))
    bad = tmp_path / "bad.yaml"
    bad.write_text("preset: echo\n")
    with pytest.raises(SimulationError, match="expected what `gputopo remote measure` writes"):
        experiments["rqueue-openb"].run(middleware=str(bad))
    for word in ("FILE", str(tmp_path / "none.yaml")):
        with pytest.raises(SimulationError, match="expected paper, measured, FILE"):
            experiments["rqueue-openb"].run(middleware=word)


def test_drmaestros_applications_move_as_many_bytes_by_a_middleware_that_was_measured(tmp_path):
    """By one as quick as the thesis's network they lose what it printed, by a slower one more."""
    for name, gb_s in (("same", 1.25), ("half", 0.625)):
        local, lent = (
            f"{{call_s: 0.001, gb_s: {value}, kernel_s: 0.1}}" for value in ("1.0e+9", gb_s)
        )
        (tmp_path / name).write_text(f"preset: echo\nlocal: {local}\nremote: {lent}\n")
    for name, printed in RODINIA.items():
        same, half = (network_of(name, str(tmp_path / file)) for file in ("same", "half"))
        assert (same.idle, same.loaded) == pytest.approx((printed.idle, printed.loaded))
        assert half.overhead == pytest.approx(2 * printed.overhead)
        assert network_of(name, "paper") == printed
