"""The R queue in the simulator: by hand on few nodes, and a slice of the synthetic year."""

from __future__ import annotations

import pytest

from policies import Request
from policies.r_queue import LEAST_OCCUPIED, GQueue, Network, RQueue, Work
from policies.remote import RemoteJob
from simulation import SimulationError
from simulation.experiments import experiments
from simulation.experiments.rqueue import tsubame, workload
from simulation.remote import QueuedJob, RemoteSimulator


def queued(submit_s, *gpus, other_s=100.0, **work):
    return QueuedJob(submit_s, RemoteJob(Request(gpus), cpus=2), Work(other_s, **work))


def ran(queue, node_count, *jobs):
    simulator = RemoteSimulator(workload.nodes(node_count), queue)
    return simulator.run(jobs), simulator


def test_the_g_queue_makes_a_job_wait_for_a_node_in_use():
    (first, second), simulator = ran(GQueue(), 1, queued(0, 2), queued(10, 1))
    assert (first.wait_s, second.wait_s) == (0, 90)
    assert simulator.idle_gpu_s == 100 * 1 + 100 * 2


def test_the_r_queue_starts_it_at_once_on_the_idle_gpu():
    (_, second), simulator = ran(RQueue(), 1, queued(0, 2), queued(10, 1))
    assert second.wait_s == 0
    assert simulator.idle_gpu_s == 10 * 1 + 90 * 0 + 10 * 2


def test_a_job_with_remote_gpus_pays_for_its_calls():
    """Two nodes have one idle GPU each; 1,000 calls take 3.47 ms instead of 0.99 each."""
    jobs = (queued(0, 2), queued(0, 2), queued(10, 2, gpu_calls=1000.0))
    (_, _, third), _ = ran(RQueue(), 2, *jobs)
    assert (third.wait_s, third.remote_gpus) == (0, 1)
    assert third.alone_s == pytest.approx(100.99)
    assert third.execution_s == pytest.approx(103.47, abs=0.01)


def test_neighbours_share_the_network_while_both_are_there():
    """A job whose 70 GB take 10 s alone takes twice that while another is on its node."""
    (first, second), _ = ran(
        RQueue(), 1, queued(0, 2, other_s=0.0, net_gb=70.0), queued(5, 1, other_s=4.0)
    )
    assert first.execution_s == pytest.approx(5 + 4 + (10 - 5 - 4 / 2))
    assert second.execution_s == pytest.approx(4)


def test_jobs_start_in_the_order_of_their_submits():
    jobs = [queued(0, 3), queued(1, 3, 3), queued(2, 1)]
    (_, second, third), _ = ran(GQueue(), 2, *jobs)
    assert second.wait_s == 99
    assert third.wait_s == 198


def test_a_job_that_never_fits_is_named():
    with pytest.raises(SimulationError, match=r"a job of \(4,\) GPUs does not fit"):
        ran(GQueue(), 1, queued(0, 4))


def test_every_job_takes_its_time_alone_under_the_g_queue():
    jobs = workload.jobs(3, 500)
    ended, _ = ran(GQueue(), 480, *jobs)
    assert all(job.execution_s == pytest.approx(job.alone_s) for job in ended)


@pytest.mark.parametrize("donors", [LEAST_OCCUPIED, "local-first"])
def test_all_gpus_cpus_and_memory_are_free_again_at_the_end(donors):
    simulator = RemoteSimulator(workload.nodes(64), RQueue(donors))
    ended = simulator.run(workload.jobs(5, 1500))
    assert any(job.remote_gpus for job in ended)
    for room in simulator.nodes.values():
        assert (room.free, room.cpus, room.memory_mb) == (7, 8, 22_000)


def test_nobody_runs_longer_than_the_papers_model_allows_on_the_most_crowded_node():
    """The bound: calls at rCUDA's latency, all bytes over a wire shared by all who fit a node."""
    simulator = RemoteSimulator(workload.nodes(64), RQueue(LEAST_OCCUPIED))
    jobs = workload.jobs(5, 1500)
    most = 8 + 3  # one CPU per process, and as many lent GPUs as a node has
    for job, ended in zip(jobs, simulator.run(jobs), strict=True):
        work, wires = job.work, Network()
        moved_gb = work.net_gb + wires.rcuda_overhead * (work.gpu_gpu_gb + work.gpu_cpu_gb)
        calls_s = work.gpu_calls * (wires.rcuda_latency_s - wires.gpu_latency_s + 1e-5)
        assert ended.execution_s <= ended.alone_s + calls_s + most * moved_gb / wires.net_gb_s


@pytest.fixture(scope="module")
def year():
    return workload.jobs(1)


def test_the_synthetic_year_reproduces_what_is_known_of_the_g_queue(year):
    """Idle GPUs and mean execution time within 2 %, the mean wait within 5 %."""
    ended, idle = tsubame.simulated(tsubame.G_QUEUE, year)
    means = tsubame.figures(ended, idle, ended)
    assert idle == pytest.approx(workload.TARGETS["idle_gpus"], rel=0.02)
    assert means["execution_mean_s"] == pytest.approx(15_148, rel=0.02)
    assert means["wait_mean_s"] == pytest.approx(3818, rel=0.05)


def test_both_experiments_are_offered():
    assert {"rqueue-tsubame", "rqueue-shrink"} <= set(experiments.names())
