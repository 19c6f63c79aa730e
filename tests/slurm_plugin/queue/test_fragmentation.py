"""Free GPUs that no job can use where they are, by Slurm's nodes and jobs."""

from collections import Counter

import pytest

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
    ("sentence", "frees", "waiting", "running", "stranded"),
    [
        ("a job of four cannot use three", (3, 3, 8), [need(4)], [], {"dgx1": 3, "dgx2": 3}),
        ("the smallest of those that wait counts", (3, 1, 0), [need(4), need(2)], [], {"dgx2": 1}),
        ("another partition's job uses nothing", (3, 1), [need(1, "cpu")], [need(2)], {"dgx2": 1}),
        ("nothing waits, and jobs are of four", (3, 5), [], [need(4)], {"dgx1": 3}),
        ("nothing waits, nothing runs", (1, 8), [], [], {}),
        ("a job of another type of GPU", (2, 8), [need(1, types=frozenset(["a100"]))], [], {}),
        ("a constraint that is not judged", (2, 8), [need(4, features="[a*2&b]")], [], {"dgx1": 2}),
        ("nodes that a job excludes", (4, 4), [need(8), need(4, exc_nodes=frozenset(["dgx1"]))],
         [], {"dgx1": 4}),
        ("too few CPUs", (4, 8), [need(4, cpus=17)], [], {"dgx1": 4, "dgx2": 8}),
    ],
)  # fmt: skip
def test_stranded_gpus(sentence, frees, waiting, running, stranded):
    assert fragmentation_of(site(*frees), waiting, Counter(running)).stranded_on == stranded


def test_a_drained_node_has_nothing_free():
    nodes = {"dgx1": node("dgx1", 8, is_open=False)}
    found = fragmentation_of(nodes, [need(1)], {})
    assert (found.total, found.free, found.share, found.largest) == (8, 0, 0.0, 0)
    assert found.largest_over_nodes == (0, 0)


def test_usual_requests_are_what_jobs_hold():
    def job(count, partition="gpu", state="RUNNING"):
        gpus = {"dgx1": tuple(range(count))}
        return QueuedJob(1, state=state, partition=partition, gpus=gpus)

    jobs = [job(4), job(4), job(2), job(1, "debug"), job(8, state="PENDING"), QueuedJob(9)]
    assert usual_requests(jobs) == {need(4): 2, need(2): 1, need(1, "debug"): 1}
