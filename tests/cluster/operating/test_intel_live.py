"""Nodes of Intel's Max series: read by xpu-smi, checked by doctor, placed by socket.

Debian's Slurm has no gpu/oneapi, so gres.conf names the device files.
"""

import json
from typing import Any

import pytest

from slurm_cluster.cluster import Cluster
from slurm_cluster.pytest_plugin import Clean

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin]

NODE = "xe1"
TOPOLOGIES = "/var/lib/gputopo/topologies"


@pytest.fixture
def intel(slurm_cluster: Clean) -> Cluster:
    """Two of Aurora's nodes: six GPUs, three to a socket, Xe Link between any two."""
    return slurm_cluster(nodes={"xe[1-2]": "aurora"})


def told(cluster: Cluster, *args: str) -> Any:
    """What a command says as JSON, whatever its exit status."""
    done = cluster.run("ctl", ["gputopo", *args, "--json"], check=False, timeout_s=120)
    return json.loads(done.out)


def wrong(cluster: Cluster) -> list[str]:
    found = told(cluster, "doctor")["findings"]
    return [finding["text"] for finding in found if finding["level"] == "fail"]


def collected(cluster: Cluster) -> dict[str, tuple[str, str]]:
    rows = told(cluster, "topology", "collect", NODE)["nodes"]
    return {row["node"]: (row["what"], row["text"]) for row in rows}


def test_xpu_smi_tells_the_machine_and_a_lost_link_leaves_the_node_to_slurm(intel: Cluster) -> None:
    """Doctor is content before and after; meanwhile a job there gets Slurm's own choice."""
    try:
        what, text = collected(intel)[NODE]
        assert (what, "Intel(R) Data Center GPU Max 1550" in text) == ("new", True)
        assert wrong(intel) == []
        kind = text.split(", ")[-1]
        known = json.loads(intel.read("ctl", f"{TOPOLOGIES}/kinds/{kind}.json"))
        assert known["source"].startswith("xpu-smi topology")
        with intel.fake_tools_of(NODE) as folder:
            # The Xe Link between GPU 0 and GPU 1 is gone, in both rows of the matrix.
            path = f"{folder}/xpu-smi/topology.txt"
            intel.run(NODE, f"sed -i '/^GPU [01].0/s/XL8/SYS/' {path}")
            assert collected(intel)[NODE][0] == "changed"
            assert any(text.startswith(f"{NODE} is left to Slurm") for text in wrong(intel))
        assert collected(intel)[NODE][0] == "same"
        assert wrong(intel) == []
    finally:
        intel.run("ctl", ["rm", "-rf", TOPOLOGIES])
        intel.engine("restart")


def test_a_job_gets_the_gpus_of_one_socket(intel: Cluster) -> None:
    """All pairs are joined alike: three GPUs of a socket, and two beside one that is in use."""
    intel.occupy(NODE, [0])
    three = intel.started("-w", NODE, "--gres=gpu:max_1550:3", sleep_s=300)
    assert three.gpus == {NODE: (3, 4, 5)}
    two = intel.started("-w", NODE, "--gres=gpu:2", sleep_s=300)
    assert two.gpus == {NODE: (1, 2)}
    assert intel.env_of(two.id)["CUDA_VISIBLE_DEVICES"] == "1,2"
    words = intel.run("ctl", ["gputopo", "explain", str(three.id)]).out
    assert "62.7 GB/s" in words
