"""The R queue's smaller experiments: fifty jobs on five nodes, and the Philly trace."""

from __future__ import annotations

import pytest

from simulation.experiments import experiments
from simulation.experiments.rqueue import occupancy, philly
from simulation.experiments.rqueue.tsubame import OURS, QUEUES, R_QUEUE, SHARED
from simulation.experiments.rqueue.workload import nodes
from simulation.remote import Ended, QueuedJob, RemoteSimulator


@pytest.fixture(scope="module")
def busy():
    return occupancy.busy_period(1)


def test_fifty_jobs_that_fit_five_nodes_come_within_ten_days(busy):
    assert len(busy) == 50
    assert all(0 <= job.submit_s < 10 * 86_400 for job in busy)
    assert all(len(job.job.request.gpus_per_node) <= 4 for job in busy)
    assert busy == sorted(busy, key=lambda job: job.submit_s)


def test_seconds_with_more_and_fewer_jobs_are_counted_until_the_queues_last_end(busy):
    """Two jobs of 10 s: one after the other before, together now."""
    log = [QueuedJob(0.0, busy[0].job, busy[0].work)] * 2
    before = [Ended(0.0, 10.0, 10.0, 0), Ended(10.0, 10.0, 10.0, 0)]
    now = [Ended(0.0, 10.0, 10.0, 0), Ended(0.0, 10.0, 10.0, 0)]
    assert occupancy.compared(log, now, before) == (10, 0, 10, 10)
    assert occupancy.compared(log, before, now) == (10, 10, 0, 20)


def test_the_picture_has_a_line_per_gpu_and_every_gpu_second_of_every_job(busy):
    simulator = RemoteSimulator(nodes(5), QUEUES[R_QUEUE], keep_placements=True)
    ended = simulator.run(busy)
    lines = occupancy.drawing(busy, ended, simulator).splitlines()
    assert len(lines) == 15
    assert {len(line) for line in lines} == {len("t000:0 ") + occupancy.WIDTH}
    longest = max(range(50), key=lambda number: ended[number].execution_s)
    sign = occupancy._SIGNS[longest]
    gpus = sum(busy[longest].job.request.gpus_per_node)
    assert sum(sign in line.split()[1] for line in lines) == gpus


def test_philly_is_replayed_on_nodes_of_eight_and_of_two_gpus():
    assert sum(room.free.bit_count() for room in philly.free_nodes().values()) == 2490
    half = philly.free_nodes(0.5)
    assert sorted({room.free.bit_count() for room in half.values()}) == [2, 8]
    assert len(half) == 116 + 160


def test_remote_gpus_shorten_the_wait_on_a_slice_of_philly():
    jobs = philly.log(1)[:600]
    waits = {}
    for name in (SHARED, R_QUEUE, OURS):
        ended = RemoteSimulator(philly.free_nodes(0.1), QUEUES[name]).run(jobs)
        waits[name] = sum(job.wait_s for job in ended)
    assert waits[OURS] < waits[SHARED]
    assert waits[R_QUEUE] < waits[SHARED]


def test_the_experiments_are_offered():
    assert experiments.get("rqueue-philly").options["nodes"] == tuple(philly.SHARES)
    assert "rqueue-occupancy" in experiments.names()
