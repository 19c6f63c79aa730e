"""A job that does not say has what its partition gives it: CPUs by its GPUs, and memory."""

import pytest
from submits_in_tests import cache, left, mode, submit, told

from slurm_plugin.slurm.interface import JobDefaults


@pytest.mark.parametrize(
    ("more", "cpus"),
    [({}, "6"), ({"cpus": 8}, None), ({"cpus_per_gpu": 1}, "2"), ({"cpus_per_task": 2}, None)],
    ids=["by default", "more of its own", "by GPU", "by task"],
)
def test_a_job_has_the_cpus_per_gpu_of_its_partition(tmp_path, more, cpus):
    """Beside several types Slurm would give it those of one GPU alone."""
    state = cache()
    state.defaults = {"batch": JobDefaults(cpus_per_gpu=3)}
    assert told(mode(tmp_path, state).on_submit(submit(**more))).get("min_cpus") == cpus


@pytest.mark.parametrize("asks", [{"form": "job", "tpj": "gres/gpu:2"}, {"form": "task"}], ids=str)
def test_slurm_counts_them_for_the_whole_job_and_by_task(tmp_path, asks):
    state = cache()
    state.defaults = {"batch": JobDefaults(cpus_per_gpu=3)}
    why = "DefCpuPerGPU with --gpus or --gpus-per-task is Slurm's to count"
    assert left(mode(tmp_path, state).on_submit(submit(**asks))) == why
    assert "tres_per_node" in str(mode(tmp_path, state).on_submit(submit(cpus_per_task=1, **asks)))


@pytest.mark.parametrize(
    ("defaults", "more", "placed"),
    [
        (JobDefaults(mem_gpu_mb=60_000), {}, False),
        (JobDefaults(mem_gpu_mb=40_000, mem_node_mb=200_000), {}, True),
        (JobDefaults(mem_node_mb=110_000), {}, False),
        (JobDefaults(mem_cpu_mb=30_000), {"cpus": 4}, False),
        (JobDefaults(mem_gpu_mb=60_000), {"mem_node_mb": 10}, True),
        (JobDefaults(mem_gpu_mb=60_000), {"mem_cpu_mb": 10}, True),
    ],
    ids=str,
)
def test_a_job_needs_the_memory_that_its_partition_gives_it(tmp_path, defaults, more, placed):
    """The node has 100,000 MB."""
    state = cache()
    state.defaults = {"batch": defaults}
    answer = mode(tmp_path, state).on_submit(submit(**more))
    assert ("tres_per_node" in told(answer)) == placed


def test_partitions_that_give_unlike_defaults_leave_a_job_of_both_to_slurm(tmp_path):
    state = cache()
    state.defaults = {"batch": JobDefaults(cpus_per_gpu=3)}
    why = "its partitions differ in the CPUs or memory that they give by default"
    assert left(mode(tmp_path, state).on_submit(submit(partition="batch,other"))) == why
