"""A job that does not say has what its partition gives it: CPUs by its GPUs, and memory."""

from dataclasses import replace

import pytest
from slot_submits_in_tests import cache, left, mode, site, submit, told

from slurm_plugin.slurm.interface import JobDefaults, SlurmPartition


@pytest.mark.parametrize("says", [{"cpus_per_gpu": 1}, {"cpus_per_task": 2}], ids=str)
def test_the_cpus_of_a_job_that_does_not_say_are_slurms_to_count(tmp_path, says):
    """Beside several types Slurm gives those of one GPU alone, or refuses the job."""
    state = cache()
    state.settings = site(defaults=JobDefaults(cpus_per_gpu=3))
    why = "the CPUs of DefCpuPerGPU are Slurm's to count"
    assert left(mode(tmp_path, state).on_submit(submit())) == why
    assert "tres_per_node" in told(mode(tmp_path, state).on_submit(submit(**says)))


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
    state.settings = site(defaults=defaults)
    answer = mode(tmp_path, state).on_submit(submit(**more))
    assert ("tres_per_node" in told(answer)) == placed


@pytest.mark.parametrize(
    ("asks", "gives", "is_placed"),
    [
        ({}, 0, False),
        ({}, 100, True),
        ({"mem_node_mb": 100}, 0, True),
        ({"mem_all": True}, 100, False),
    ],
)
def test_a_job_that_gets_all_memory_of_a_node_is_slurms_own(tmp_path, asks, gives, is_placed):
    """Slurm starts it where no job has any, if it counts memory at all."""
    state = cache()
    state.settings = site(defaults=JobDefaults(mem_cpu_mb=gives))
    assert "tres_per_node" in told(mode(tmp_path, state).on_submit(submit(**asks)))
    state = cache()
    counted = {"SelectTypeParameters": "CR_Core_Memory"}
    state.settings = site(defaults=JobDefaults(mem_cpu_mb=gives), config=counted)
    values = told(mode(tmp_path, state).on_submit(submit(**asks)))
    assert ("tres_per_node" in values) == is_placed
    assert ("it gets all memory of its nodes" in values["admin_comment"]) == (not is_placed)


def test_partitions_that_give_unlike_defaults_leave_a_job_of_both_to_slurm(tmp_path):
    state = cache()
    known = site(defaults=JobDefaults(cpus_per_gpu=3))
    other = SlurmPartition("other", ("dgx1",), False)
    state.settings = replace(known, partitions=(*known.partitions, other))
    why = "its partitions differ in the CPUs or memory that they give by default"
    assert left(mode(tmp_path, state).on_submit(submit(partition="batch,other"))) == why
