"""Partitions and networks by which Slurm gives a job other nodes than it asks for: Slurm's own."""

import pytest

from slurm_cluster.cluster import Cluster
from slurm_cluster.slurm_text import Job

pytestmark = [pytest.mark.cluster, pytest.mark.slots]

LARGER = "its partition gives more than it asks for (MinNodes, OverSubscribe=EXCLUSIVE)"
PARTITIONS = (
    "PartitionName=floor Nodes=dgx[1-2] MinNodes=2 DefaultTime=10 State=UP\n"
    "PartitionName=whole Nodes=dgx[1-2] OverSubscribe=EXCLUSIVE DefaultTime=10 State=UP"
)
ONE_NETWORK = "its nodes are to be in one network, which Slurm alone knows"
TREES = "SwitchName=a Nodes=dgx1,minsky1\nSwitchName=b Nodes=dgx2,amd1,bridged1\n"
YAML = """\
- topology: racks
  cluster_default: true
  tree:
    switches:
      - {switch: a, nodes: "dgx1,minsky1"}
      - {switch: b, nodes: "dgx2,amd1,bridged1"}
"""
#: File and text, the release that reads it, and whether Slurm gives a job any nodes together.
NETWORKS = {
    "block": (
        *("topology.conf", "BlockName=a Nodes=dgx1,minsky1\nBlockName=b Nodes=dgx2,amd1\n"),
        *((23, 11), False),
    ),
    "two trees": ("topology.conf", TREES, (0, 0), False),
    "one tree": ("topology.conf", f"{TREES}SwitchName=top Switches=a,b\n", (0, 0), True),
    "two trees in YAML": ("topology.yaml", YAML, (25, 5), False),
    "one tree in YAML": (
        *("topology.yaml", f"{YAML}      - {{switch: top, children: 'a,b'}}\n"),
        *((25, 5), True),
    ),
}


def note(job: Job) -> str:
    return job.fields["AdminComment"]


def test_what_a_partition_gives_beyond_the_request_is_given_at_once(cluster: Cluster) -> None:
    """Behind a gate such a job would be released onto what it asks for, and never start."""
    cluster.configure_extra(PARTITIONS)
    both = cluster.started("-p", "floor", "--gres=gpu:2", sleep_s=300)
    assert {node: len(gpus) for node, gpus in both.gpus.items()} == {"dgx1": 2, "dgx2": 2}
    assert note(both) == f"[gpu-topo: | Slurm's own choice: {LARGER}]"
    cluster.cancel(both.id)
    alone = cluster.started("-p", "whole", "--gres=gpu:2", sleep_s=300)
    assert [len(gpus) for gpus in alone.gpus.values()] == [8]
    assert note(alone) == f"[gpu-topo: | Slurm's own choice: {LARGER}]"
    # That of a partition which gives no more is placed as ever.
    assert cluster.started("-p", "dgx", "--gres=gpu:2", sleep_s=300).gpus


@pytest.mark.parametrize("state", ["empty", "gated"])
def test_cpus_of_gpus_that_tasks_share_unevenly_are_slurms_to_count(
    cluster: Cluster, state: str
) -> None:
    """As slots such a job was refused: the sum of its CPUs has to be a multiple of its tasks."""
    uneven = ("-p", "dgx", "-N1", "-n4", "--gres=gpu:3", "--cpus-per-gpu=2")
    if state == "gated":
        # Its array is put behind gates, whatever is free.
        uneven = (*uneven, "--array=0-1")
    job = cluster.started(*uneven, sleep_s=300)
    assert [len(gpus) for gpus in job.gpus.values()] == [3]
    assert "its 4 tasks share the 6 CPUs of its GPUs unevenly" in note(job)
    even = cluster.started(*uneven[:3], "-n3", *uneven[4:6], sleep_s=300)
    assert "Slurm's own" not in note(even)


@pytest.mark.long("slurm.conf changes for it")
@pytest.mark.parametrize("kind", NETWORKS)
def test_nodes_of_one_network_are_slurms_to_find(cluster: Cluster, kind: str) -> None:
    """A job that names nodes of two blocks, or of two trees, is refused."""
    name, text, since, is_joined = NETWORKS[kind]
    if cluster.release < since:
        pytest.skip(f"Slurm reads {kind} of {name} since {since[0]}.{since[1]:02}")
    variant, file = cluster.variant(), f"/etc/slurm/{name}"
    cluster.put("ctl", file, text)
    try:
        plugin = "block" if kind == "block" else "tree"
        cluster.configure_extra(f"TopologyPlugin=topology/{plugin}")
        job = cluster.started("-N2", "--gres=gpu:2", "-x", "bridged1", sleep_s=300)
        if is_joined:
            assert "Slurm's own" not in note(job)
        else:
            assert set(job.gpus) in ({"dgx1", "minsky1"}, {"dgx2", "amd1"})
            assert note(job) == f"[gpu-topo: | Slurm's own choice: {ONE_NETWORK}]"
        one = cluster.started("-w", "dgx1", "--gres=gpu:2", sleep_s=300)
        assert "Slurm's own" not in note(one)
    finally:
        # slurmctld would not start without a description of the network.
        cluster.run("ctl", "rm -f /cluster/extra.conf")
        cluster.switch(variant)
        cluster.run("ctl", f"rm -f {file}")
