"""The live replay: its slices, what is submitted, and how far off a prediction is."""

from __future__ import annotations

from random import Random

import pytest

from bench.live.large import replay_trace
from bench.live.large.replay_trace import JOBS, LOAD, NODES, PER_NODE, SIDES, SPAN_S, ReplayNodes
from policies import Placement
from simulation.core.jobs import SimJob
from simulation.core.record import Record, SimulatedRun
from slurm_cluster import description

CONF = "SchedulerParameters=batch_sched_delay=0,bf_interval=5\n" + ReplayNodes().slurm_conf()


def test_a_slice_brings_its_load_within_its_span():
    jobs = replay_trace.slice_of(1)
    work = sum(job.duration_s * sum(job.gpus_per_node) for job in jobs)
    assert len(jobs) == JOBS
    assert work == pytest.approx(LOAD * NODES * PER_NODE * SPAN_S, rel=0.01)
    assert (jobs[0].submit_s, jobs[-1].submit_s) == (0.0, SPAN_S)
    assert all(job.walltime_s >= job.duration_s for job in jobs)
    assert {job.walltime_s % 60 for job in jobs} == {0}
    assert jobs != replay_trace.slice_of(2)


def test_scaling_keeps_the_order_of_durations_up_to_the_longest():
    log = [SimJob(n, (1,), float(10**n), float(n)) for n in range(7)]
    lasts = [job.duration_s for job in replay_trace.scaled(log, Random(1))]
    assert lasts == sorted(lasts)
    assert lasts[0] >= replay_trace.LEAST_S
    assert lasts[-1] <= replay_trace.MOST_S


def test_every_side_has_nodes_and_a_partition_of_its_own():
    nodes = ReplayNodes()
    members = [nodes.of(side) for side in SIDES]
    assert [len(names) for names in members] == [NODES] * 3
    assert len({name for names in members for name in names}) == 3 * NODES
    conf = nodes.slurm_conf()
    assert all(f"PartitionName={partition} Nodes=" in conf for partition in SIDES.values())
    assert '  plain: {mode: "off"}' in nodes.engine_partitions
    assert "  ahead: {mode: enforce, policy: horizon}" in nodes.engine_partitions
    assert description.CORES_PER_GPU * PER_NODE == 16


def test_a_submit_asks_for_what_the_simulator_is_told():
    words = replay_trace.sbatch(SimJob(7, (2, 2), 3.5, walltime_s=120.0), "ahead", "r1", "/x")
    assert words[:2] == ["sbatch", "-Q"]
    assert {"-N2", "-n2", "--gres=gpu:2", "-t2", "r1-7", "ahead", "--mem=10"} <= set(words)
    assert words[-1].endswith("sleep 3.50")


def test_a_longer_launch_is_predicted_to_make_jobs_wait_longer():
    jobs = replay_trace.slice_of(1)[:80]
    quick, slow = (
        replay_trace.predicted(jobs, "stock", CONF, [around_s])[0] for around_s in (0.1, 3.0)
    )
    assert replay_trace.wait_s(slow) > replay_trace.wait_s(quick)


def test_the_figure_is_by_how_much_the_prediction_is_off():
    def run(wait_s: float) -> SimulatedRun:
        placement = Placement({"many05": (0, 3)}, "mapa", "")
        record = Record(SimJob(1, (2,), 5.0), wait_s, wait_s + 5, placement)
        return SimulatedRun("mapa", [record], gpus=8)

    (figure,) = replay_trace.figures(3, {"mapa": run(20.0)}, {"mapa": [run(20.0), run(25.0)]}, {})
    assert (figure.name, figure.value, figure.ok) == ("replay_trace.3.mapa.off", 0.125, False)
    assert figure.compared_with == "20.00 s live, 22.50 s predicted"
