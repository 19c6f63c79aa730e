"""Free GPUs that no job can use where they are, by Slurm's nodes and jobs."""

from collections import Counter
from dataclasses import replace

import pytest

from gres_topology.slurm_files import topology_conf
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


BLOCKS = topology_conf.parse(
    "BlockName=b1 Nodes=dgx[1-2]\nBlockName=b2 Nodes=dgx[3-4]\nBlockSizes=2,4\n", "t"
)
TREES = topology_conf.parse("SwitchName=s1 Nodes=dgx[1-2]\nSwitchName=s2 Nodes=dgx[3-4]\n", "t")


@pytest.mark.parametrize(
    ("sentence", "frees", "nodes", "stranded", "largest"),
    [
        ("one node of each block has room", (4, 0, 4, 0), 2, {"dgx1": 4, "dgx3": 4}, (1, 4)),
        ("both of one block have", (4, 4, 0, 2), 2, {"dgx4": 2}, (2, 4)),
        ("a job of one node may be anywhere", (4, 0, 4, 0), 1, {}, (1, 4)),
    ],
)
@pytest.mark.parametrize("network", [replace(BLOCKS, sizes=(2, 4)), TREES], ids=["blocks", "trees"])
def test_jobs_of_several_nodes_stay_in_one_block(
    sentence, frees, nodes, stranded, largest, network
):
    found = fragmentation_of(site(*frees), [need(4, nodes=nodes)], {}, lambda need: network)
    assert (found.stranded_on, found.largest_over_nodes) == (stranded, largest)


@pytest.mark.parametrize(
    ("sizes", "frees", "largest"),
    [
        ((2, 4), (4, 4, 4, 4), (4, 4)),
        # Three nodes are more than a block: Slurm joins two for them.
        ((2, 4), (4, 4, 4, 0), (3, 4)),
        ((2,), (4, 4, 4, 4), (2, 4)),
    ],
)
def test_blocks_are_joined_as_slurm_plans_with(sizes, frees, largest):
    blocks = replace(BLOCKS, sizes=sizes)
    found = fragmentation_of(site(*frees), [], {}, lambda need: blocks)
    assert found.largest_over_nodes == largest


def test_without_units_any_nodes_go_together():
    found = fragmentation_of(site(4, 0, 4, 0), [need(4, nodes=2)], {})
    assert (found.stranded, found.largest_over_nodes) == (0, (2, 4))


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
