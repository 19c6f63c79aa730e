"""A live job of several nodes gets them below one switch, by topology.conf or by topology.yaml."""

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


@pytest.mark.parametrize("policy", ["mapa", "topo-aware"])
def test_two_nodes_are_taken_below_one_switch(cluster, policy):
    """Of whole nodes any two are as good; the switch joins dgx2 with bridged1."""
    hint = f"--comment=gpu-topo: policy={policy}"
    without = cluster.started("-N2", "--gres=gpu:8", hint, sleep_s=300)
    assert "nodes below" not in without.fields["AdminComment"]
    cluster.cancel(without.id)
    cluster.wait_idle()
    cluster.put("ctl", TOPOLOGY_CONF, SWITCHES)
    configure_engine(cluster, f"topology_conf: {TOPOLOGY_CONF}")
    job = cluster.started("-N2", "--gres=gpu:8", hint, sleep_s=300)
    assert set(job.gpus) == {"dgx2", "bridged1"}
    assert ("nodes below s2" if policy == "mapa" else "communication") in job.fields["AdminComment"]
    assert all(len(gpus) == 8 for gpus in job.gpus.values())


WHOLE = """\
SwitchName=s1 Nodes=dgx1,minsky1
SwitchName=s2 Nodes=dgx2
"""


def test_a_job_of_one_node_leaves_the_switch_with_more_whole_nodes_alone(cluster):
    """Both dgx are alike, and a job of two nodes then finds the other's switch whole.

    The type is named: three GPUs of any kind would fill minsky1, whatever switch that is below.
    """
    three = cluster.started("--gres=gpu:v100:3", sleep_s=300)
    assert set(three.gpus) == {"dgx1"}
    cluster.cancel(three.id)
    cluster.wait_idle()
    cluster.put("ctl", TOPOLOGY_CONF, WHOLE)
    configure_engine(cluster, f"topology_conf: {TOPOLOGY_CONF}")
    assert set(cluster.started("--gres=gpu:v100:3", sleep_s=300).gpus) == {"dgx2"}
    pair = cluster.started("-N2", "--gres=gpu:4", sleep_s=300)
    assert set(pair.gpus) == {"dgx1", "minsky1"}
    assert "nodes below s1" in pair.fields["AdminComment"]


TOPOLOGY_YAML = """\
- topology: default
  cluster_default: true
  tree:
    switches:
      - {switch: s1, nodes: dgx1}
      - {switch: s2, nodes: "dgx2,bridged1"}
      - {switch: s3, nodes: "minsky1,amd1"}
      - {switch: top, children: "s[1-3]"}
"""


@pytest.fixture
def topology_yaml(cluster):
    """Slurm goes by a topology.yaml, whatever slurm.conf and topology.conf say."""
    if cluster.release < (25, 5):
        pytest.skip("this Slurm does not read topology.yaml")
    cluster.put("ctl", "/etc/slurm/topology.yaml", TOPOLOGY_YAML)
    cluster.restart_slurmctld()
    yield
    cluster.run("ctl", "rm /etc/slurm/topology.yaml")
    cluster.restart_slurmctld()


def test_nodes_are_slurms_choice_where_it_has_a_topology_yaml(cluster, topology_yaml):
    """The engine knows no network there and would take both dgx."""
    job = cluster.started("-N2", "--gres=gpu:8", sleep_s=300)
    assert set(job.gpus) == {"dgx2", "bridged1"}
    pair = cluster.started("-w", "dgx1", "--gres=gpu:2", sleep_s=300)
    assert pair.gpus == {"dgx1": (0, 3)}
    doctor = cluster.run("ctl", "gputopo doctor", check=False).out
    assert "goes by /etc/slurm/topology.yaml and not by topology.conf" in doctor
