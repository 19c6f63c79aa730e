"""A live job of several nodes gets them below one switch of topology.conf."""

import pytest
from live_harness import configure_engine

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin]

TOPOLOGY_CONF = "/etc/slurm/gputopo-network.conf"
SWITCHES = """\
SwitchName=s1 Nodes=dgx1
SwitchName=s2 Nodes=dgx2,bridged1
SwitchName=s3 Nodes=minsky1,amd1
SwitchName=top Switches=s[1-3]
"""


def test_two_nodes_are_taken_below_one_switch(cluster):
    """Both dgx have better links; the switch joins dgx2 with bridged1, and eight GPUs fit there."""
    without = cluster.started("-N2", "--gres=gpu:8", sleep_s=300)
    assert "nodes below" not in without.fields["AdminComment"]
    cluster.cancel(without.id)
    cluster.wait_idle()
    cluster.put("ctl", TOPOLOGY_CONF, SWITCHES)
    configure_engine(cluster, f"topology_conf: {TOPOLOGY_CONF}")
    job = cluster.started("-N2", "--gres=gpu:8", sleep_s=300)
    assert set(job.gpus) == {"dgx2", "bridged1"}
    assert "nodes below s2" in job.fields["AdminComment"]
    assert all(len(gpus) == 8 for gpus in job.gpus.values())
