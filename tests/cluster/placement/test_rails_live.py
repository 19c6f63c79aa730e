"""Live jobs of several nodes on a rail-optimised network get the same rails on each node."""

from collections.abc import Iterator

import pytest
from live_harness import CONFIG, explained, got_by
from modes import enforcement

from slurm_cluster.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.enforced]

MACHINE = "/etc/slurm/rail-node.yaml"
NODES = ("bridged1", "dgx1", "dgx2")
LOW, HIGH = (0, 1, 2, 3), (4, 5, 6, 7)


@pytest.fixture
def railed(cluster: Cluster) -> Iterator[Cluster]:
    """The nodes of eight NVIDIA GPUs are said to be machines with a rail for each GPU."""
    cluster.put("ctl", MACHINE, "like: dgx-h100\nname: rail-node\n")
    text = cluster.read("ctl", CONFIG)
    for machine in ("dgx1v", "a100-pcie-bridged"):
        assert f"topology: {machine}" in text
        text = text.replace(f"topology: {machine}", f"topology: {MACHINE}")
    cluster.put("ctl", CONFIG, text)
    cluster.engine("restart")
    yield cluster
    cluster.run("ctl", ["rm", MACHINE])


@pytest.mark.both_modes
def test_the_empty_node_gives_the_rails_that_the_other_has_free(railed):
    """Slurm itself takes the first four of the empty node."""
    railed.occupy("dgx2", LOW)
    pair = ("-N2", "-w", "dgx1,dgx2", "--gres=gpu:4")
    assert got_by(railed, *pair, "-p", "off") == {"dgx1": LOW, "dgx2": HIGH}
    job = railed.started(*pair, sleep_s=300)
    assert job.gpus == {"dgx1": HIGH, "dgx2": HIGH}
    if enforcement() == "select":
        told = explained(railed, job.id)
        assert told["chosen"]["spine"]["ring"] == told["chosen"]["spine"]["tree"] == 0
        assert told["slurm"]["spine"]["ring"] == told["slurm"]["spine"]["ring_total"] == 3.5
        words = railed.run("ctl", ["gputopo", "explain", str(job.id)]).out
        assert "rails 4,5,6,7 on each node, over the spine ring 0.00 of 3.50" in words


@pytest.mark.select_plugin
def test_of_equal_nodes_those_with_the_same_rails_free_are_taken(railed):
    """With slots their GPUs are of different types, of which a job gets none together."""
    railed.occupy_nodes({"bridged1": HIGH, "dgx1": LOW, "dgx2": HIGH})
    pair = ("-N2", "-x", "minsky1,amd1", "--gres=gpu:4")
    job = railed.started(*pair, sleep_s=300)
    assert job.gpus == {"bridged1": LOW, "dgx2": LOW}


@pytest.mark.select_plugin
def test_topo_aware_looks_at_rails_too(railed):
    railed.occupy("dgx2", LOW)
    hint = "--comment=gpu-topo: policy=topo-aware"
    job = railed.started("-N2", "-w", "dgx1,dgx2", "--gres=gpu:4", hint, sleep_s=300)
    assert job.gpus == {"dgx1": HIGH, "dgx2": HIGH}
