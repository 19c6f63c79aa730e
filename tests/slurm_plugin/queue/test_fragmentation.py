"""Free GPUs that no job can use where they are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import Node
from slurm_plugin.queue.fragmentation import fragmentation_of, usual_requests
from slurm_plugin.slurm.interface import QueuedJob

EIGHT = ("v100",) * 8


def node(name, free, **more):
    """A node of eight GPUs of which so many are free."""
    more = {"gpu_types": EIGHT, "partitions": frozenset(["gpu"])} | more
    return Node(name, free=(1 << free) - 1, cpus=16, memory_mb=4000, **more)


def site(*frees):
    return {f"dgx{i}": node(f"dgx{i}", free) for i, free in enumerate(frees, 1)}


def need(gpus, partition="gpu", **more):
    return Need(gpus, partitions=frozenset([partition]), **more)


@pytest.mark.parametrize(
    ("sentence", "frees", "waiting", "usual", "stranded"),
    [
        ("a job of four cannot use three", (3, 3, 8), [need(4)], {}, {"dgx1": 3, "dgx2": 3}),
        ("the smallest of those that wait counts", (3, 1, 0), [need(4), need(2)], {}, {"dgx2": 1}),
        ("another partition's job uses nothing", (3, 1), [need(1, "cpu")], {"gpu": 2}, {"dgx2": 1}),
        ("nothing waits, and jobs are of four", (3, 5), [], {"gpu": 4}, {"dgx1": 3}),
        ("nothing waits, nothing runs", (1, 8), [], {}, {}),
        ("a job of another type of GPU", (2, 8), [need(1, types=frozenset(["a100"]))], {}, {}),
        ("a constraint that is not judged", (2, 8), [need(4, features="[a*2&b]")], {}, {"dgx1": 2}),
        ("nodes that a job excludes", (4, 4), [need(8), need(4, exc_nodes=frozenset(["dgx1"]))],
         {}, {"dgx1": 4}),
    ],
)  # fmt: skip
def test_stranded_gpus(sentence, frees, waiting, usual, stranded):
    assert fragmentation_of(site(*frees), waiting, usual).stranded_on == stranded


def test_the_largest_job_that_could_start():
    found = fragmentation_of(site(8, 3, 3, 3, 0), [], {})
    assert (found.free, found.total, found.largest) == (17, 40, 8)
    assert found.nodes_with == (4, 4, 4, 1, 1, 1, 1, 1)
    assert found.largest_over_nodes == (4, 3)


def test_a_drained_node_has_nothing_free():
    nodes = {"dgx1": node("dgx1", 8, is_open=False)}
    found = fragmentation_of(nodes, [need(1)], {})
    assert (found.total, found.free, found.share, found.largest) == (8, 0, 0.0, 0)
    assert found.largest_over_nodes == (0, 0)


def test_usual_requests_are_those_most_jobs_of_the_partition_have():
    def job(count, partition="gpu", state="RUNNING"):
        gpus = {"dgx1": tuple(range(count))}
        return QueuedJob(1, state=state, partition=partition, gpus=gpus)

    jobs = [job(4), job(4), job(2), job(1, "debug"), job(8, state="PENDING"), QueuedJob(9)]
    assert usual_requests(jobs) == {"gpu": 4, "debug": 1}


@settings(deadline=None)
@given(st.lists(st.integers(0, 8), min_size=1), st.lists(st.integers(1, 8)), st.integers(1, 8))
def test_whoever_waits_no_more_is_stranded_than_free(frees, waiting, usual):
    nodes = site(*frees)
    found = fragmentation_of(nodes, map(need, waiting), {"gpu": usual})
    assert 0 <= found.stranded <= found.free == sum(frees)
    assert 0.0 <= found.share <= 1.0
    smaller = fragmentation_of(nodes, map(need, [*waiting, 1]), {"gpu": usual})
    assert smaller.stranded == 0
