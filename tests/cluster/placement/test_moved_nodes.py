"""A node gets another place in slurmctld's topology: the engine and doctor notice."""

from collections.abc import Iterator

import pytest
from live_harness import configure_engine

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.both_modes,
    pytest.mark.long("unit tests have what is read; ten seconds until it is noticed"),
]

FILE = "/etc/slurm/topology.conf"
SWITCHES = """\
SwitchName=s1 Nodes=dgx1,minsky1
SwitchName=s2 Nodes=dgx2,bridged1,amd1
SwitchName=top Switches=s[1-2]
"""


@pytest.fixture
def tree(cluster: Cluster) -> Iterator[None]:
    """Slurm and the engine go by one file."""
    cluster.put("ctl", FILE, SWITCHES)
    cluster.configure_extra("TopologyPlugin=topology/tree")
    configure_engine(cluster, f"topology_conf: {FILE}")
    yield
    cluster.run("ctl", "rm -f /cluster/extra.conf")
    cluster.switch("gputopo")
    cluster.run("ctl", f"rm -f {FILE}")


def test_a_node_that_moved_is_noticed(cluster: Cluster, tree: None) -> None:
    until(lambda: cluster.status()["network"]["since"], "the engine has asked")
    assert "network: tree, by scontrol show topology" in cluster.run("ctl", "gputopo status").out
    same = f"and so does topology_conf: {FILE}"
    assert same in cluster.run("ctl", "gputopo doctor", check=False).out
    since = cluster.status()["network"]["since"]
    if cluster.release >= (25, 5):
        cluster.run("ctl", "scontrol update nodename=dgx2 topology=default:s1")
    else:
        moved = SWITCHES.replace("dgx1,", "dgx[1-2],").replace("dgx2,", "")
        cluster.put("ctl", FILE, moved)
        cluster.restart_slurmctld()
        cluster.put("ctl", FILE, SWITCHES)
    until(lambda: cluster.status()["network"]["since"] > since, "the engine has noticed", 30)
    found = cluster.run("ctl", "gputopo doctor", check=False).out
    assert f"slurmctld has another network in force than {FILE}: dgx2 is in switch s1" in found
    assert "another topology in force" in cluster.read("ctl", "/var/log/gputopo/engine.log")
