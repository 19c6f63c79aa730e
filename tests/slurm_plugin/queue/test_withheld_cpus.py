"""CPUs that are free, and that Slurm does not give every job."""

from dataclasses import replace
from typing import Any

import pytest
from jobs_in_tests import node

from slurm_plugin.queue.candidates import BESIDE_OTHERS, Need, cpus_for, fits, open_groups
from slurm_plugin.queue.capacity import (
    Hold,
    emptied,
    gpus_of_any_type,
    held_by,
    nodes_of,
    with_hold,
    without_holds,
)
from slurm_plugin.slurm.interface import QueuedJob, SlurmPartition

NARROW = SlurmPartition("narrow", ("dgx1",), False, max_cpus_per_node=4)
SOCKET = SlurmPartition("socket", ("dgx1",), False, max_cpus_per_socket=3)
BOTH = SlurmPartition("both", ("dgx1",), False, max_cpus_per_node=5, max_cpus_per_socket=3)
OPEN = SlurmPartition("open", ("dgx1",), True)
PARTITIONS = (NARROW, SOCKET, BOTH, OPEN)


def runs(cpus: int, gpus: int = 0, partition: str = "open", **more: Any) -> QueuedJob:
    """A job that runs on dgx1 with so many CPUs and GPUs."""
    held = {"dgx1": tuple(range(gpus))} if gpus else {}
    values = {"state": "RUNNING", "nodes": ("dgx1",), "gpus": held, **more}
    return QueuedJob(1, cpus=cpus, partition=partition, **values)


def dgx1(*running: QueuedJob, cpus_by_gpu: int = 0) -> Any:
    """dgx1: 16 CPUs on two sockets, 8 GPUs, and what these jobs leave of it."""
    here = [job for job in running if job.state == "RUNNING" and "dgx1" in job.nodes]
    used = sum(job.cpus for job in here)
    names = tuple(one.name for one in PARTITIONS)
    fields = {"alloc_cpus": used, "cpus_by_gpu": cpus_by_gpu, "sockets": 2}
    slurm = node("dgx1", partitions=names, **fields)
    return nodes_of([slurm], running, gpus_of_any_type, partitions=PARTITIONS)


def get(nodes: Any, gpus: int, partition: str = "open", **more: Any) -> int:
    """The CPUs that a job may have."""
    need = Need(gpus, partitions=frozenset(partition.split(",")), **more)
    return cpus_for(need, nodes["dgx1"])


@pytest.mark.parametrize(
    ("sentence", "running", "by_gpu", "gpus", "expected"),
    [
        ("without GPUs a job gets none of the cores kept for them", (), 1, 0, 8),
        ("a job with GPUs gets those of its GPUs beside all others", (), 1, 3, 11),
        ("with all GPUs it gets all", (), 1, 8, 16),
        ("jobs without GPUs hold none of them", (runs(8),), 1, 1, 1),
        ("a job with GPUs is taken to hold those of its GPUs", (runs(2, gpus=2),), 1, 1, 9),
        ("as far as it has CPUs", (runs(1, gpus=2),), 1, 1, 9),
        ("what it has of others is nobody's else", (runs(6, gpus=2),), 1, 1, 5),
        ("two cores for each GPU: a job without GPUs gets none", (), 2, 0, 0),
        ("a job with shares of a GPU opens its cores, too",
         (runs(1, shared_gpus={"dgx1": (0,)}),), 1, 0, 8),
        ("no cores are kept: all that is free", (runs(6, gpus=2),), 0, 0, 10),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_restricted_cores_are_for_as_many_gpus_as_a_job_has(
    sentence, running, by_gpu, gpus, expected
):
    assert get(dgx1(*running, cpus_by_gpu=by_gpu), gpus) == expected


@pytest.mark.parametrize(
    ("sentence", "running", "partition", "expected"),
    [
        ("so many of a node", (), "narrow", 4),
        ("what the partition's own jobs hold counts", (runs(3, partition="narrow"),), "narrow", 1),
        ("what others hold does not", (runs(3),), "narrow", 4),
        ("nobody gets more than is free", (runs(15),), "narrow", 1),
        ("a job that ends holds nothing",
         (runs(4, partition="narrow", state="COMPLETING"),), "narrow", 4),
        ("so many of each socket", (), "socket", 6),
        ("a socket that must be full is left out", (runs(5, partition="socket"),), "socket", 3),
        ("one that may be full counts", (runs(3, partition="socket"),), "socket", 6),
        ("one that is not gives as many again, as Slurm counts",
         (runs(2, partition="socket"),), "socket", 6),
        ("both limits", (), "both", 5),
        ("the partition that allows most counts", (), "narrow,socket", 6),
        ("one without limits allows all", (), "narrow,open", 16),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_partition_allows_its_jobs_so_many_cpus_together(sentence, running, partition, expected):
    assert get(dgx1(*running), 1, partition) == expected


@pytest.mark.parametrize(
    ("sentence", "running", "partition", "expected"),
    [
        ("all that it may on an empty node", (), "narrow", 4),
        ("without jobs of its own others' CPUs may count as its own", (runs(3),), "narrow", 1),
        ("with one of its own they do not", (runs(3), runs(1, partition="narrow")), "narrow", 3),
        ("nor where that one is on another node",
         (runs(3), runs(1, partition="narrow", nodes=("dgx2",))), "narrow", 4),
        ("of a socket, too", (runs(2),), "socket", 1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_in_every_release_slurm_gives_a_partition_so_many(sentence, running, partition, expected):
    node = dgx1(*running)["dgx1"]
    assert node.cpus_for(1, frozenset((partition,)), for_sure=True) == expected


def test_a_job_is_slurms_own_where_only_some_releases_start_it():
    nodes, need = dgx1(runs(3)), Need(1, cpus=4, partitions=frozenset(("narrow",)))
    assert open_groups(need, nodes, (), 0.0, 9.0) == ([], BESIDE_OTHERS)
    [group] = open_groups(replace(need, cpus=1), nodes, (), 0.0, 9.0)[0]
    assert group.names == ("dgx1",)


def test_an_exclusive_job_gets_nothing_of_a_node_that_its_partition_may_not_fill():
    assert (get(dgx1(), 1, "narrow", exclusive=True), get(dgx1(), 1, exclusive=True)) == (0, 16)


def test_what_is_taken_and_given_back_counts():
    job = runs(3, gpus=2, partition="narrow")
    nodes = with_hold(dgx1(cpus_by_gpu=1), held_by(job, 0.0))
    assert (get(nodes, 0), get(nodes, 0, "narrow")) == (7, 1)
    back = without_holds(nodes, [held_by(job, 0.0)])
    assert (get(back, 0), get(back, 0, "narrow")) == (8, 4)
    assert get(emptied(nodes), 0, "narrow") == 4


def test_a_need_holds_for_its_one_partition():
    one, two = frozenset(("narrow",)), frozenset(("narrow", "open"))
    holds = [Need(1, cpus=3, partitions=some).hold(["dgx1"], 1, 9.0) for some in (one, two)]
    assert holds[0] == Hold({"dgx1": 1}, 3, 0, 9.0, "narrow")
    assert [get(with_hold(dgx1(), hold), 1, "narrow") for hold in holds] == [1, 4]


def test_a_job_that_gets_too_few_cpus_does_not_fit():
    need = Need(1, cpus=5, partitions=frozenset(("narrow",)))
    assert not fits(need, dgx1()["dgx1"])
