"""Nodes of our choice under topology/block and topology/tree: what Slurm promises is kept.

Six nodes of four GPUs, in two blocks or below two leaf switches of three; the pairs of GPUs 0,1 and
2,3 of a node are joined best.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

import pytest
from live_harness import configure_engine

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.pytest_plugin import Clean

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin]

FIRST, LAST = {"g1", "g2", "g3"}, {"g4", "g5", "g6"}
NETWORKS = {
    "block": "BlockName=b1 Nodes=g[1-3]\nBlockName=b2 Nodes=g[4-6]\nBlockSizes=3,6\n",
    "tree": "SwitchName=s1 Nodes=g[1-3]\nSwitchName=s2 Nodes=g[4-6]\n"
    "SwitchName=top Switches=s[1-2]\n",
}
#: What Slurm's other nodes hold beside a pair of GPUs that is free.
HALF = (2, 3)
SLURMS, OURS = "/etc/slurm/topology.conf", "/etc/slurm/gputopo-network.conf"


@pytest.fixture
def six(slurm_cluster: Clean) -> Cluster:
    """The cluster without a topology plugin."""
    return slurm_cluster(nodes={"g[1-6]": "minsky"})


def until_asked(cluster: Cluster) -> None:
    """The engine, just started, knows which network slurmctld has in force."""
    until(lambda: cluster.status()["network"]["since"], "the engine has asked")


@pytest.fixture(params=["block", "tree"])
def network(six: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Slurm goes by the network, and the engine knows it."""
    kind: str = request.param
    if kind == "block" and six.release < (23, 11):
        pytest.skip("this Slurm has no topology/block")
    six.put("ctl", SLURMS, NETWORKS[kind])
    six.configure_extra(f"TopologyPlugin=topology/{kind}")
    six.put("ctl", OURS, NETWORKS[kind])
    configure_engine(six, f"topology_conf: {OURS}")
    until_asked(six)
    yield kind
    # slurmctld would not start with such a plugin and no description of the network
    six.run("ctl", "rm -f /cluster/extra.conf")
    six.switch("gputopo")
    six.run("ctl", f"rm -f {SLURMS} {OURS}")


def halves(cluster: Cluster, *nodes: str) -> None:
    """These nodes have two GPUs free, joined by the best link."""
    cluster.occupy_nodes(dict.fromkeys(nodes, HALF))


def by_block(gpus: Mapping[str, object]) -> list[int]:
    """How many nodes of each block or leaf switch."""
    return [len(FIRST & set(gpus)), len(LAST & set(gpus))]


def test_a_job_of_one_node_fills_a_node_and_leaves_blocks_whole(six: Cluster, network: str) -> None:
    """Slurm alone takes a whole node, of the other block or switch or of this one."""
    halves(six, "g2")
    assert six.started("--gres=gpu:2", sleep_s=300).gpus == {"g2": (0, 1)}


def test_a_job_of_several_nodes_stays_in_one_block_and_fills_it(six: Cluster, network: str) -> None:
    halves(six, "g2", "g3")
    job = six.started("-N2", "--gres=gpu:2", sleep_s=300)
    assert job.gpus == {"g2": (0, 1), "g3": (0, 1)}
    assert ("nodes below b1" if network == "block" else "nodes below s1") in job.fields[
        "AdminComment"
    ]
    explained = six.run("ctl", f"gputopo explain {job.id}").out
    assert f"than Slurm's own (topology/{network})" in explained
    # and the other is whole for who needs it
    assert set(six.started("-N3", "--gres=gpu:4", sleep_s=300).gpus) == LAST


def test_nodes_that_would_be_better_stay_where_slurm_keeps_the_job(
    six: Cluster, network: str
) -> None:
    """Of the halves one is here and one there: together they would be on two switches."""
    halves(six, "g3", "g4")
    assert sorted(by_block(six.started("-N2", "--gres=gpu:2", sleep_s=300).gpus)) == [0, 2]


def test_the_count_of_switches_is_kept(six: Cluster, network: str) -> None:
    if network != "tree":
        pytest.skip("topology/block knows no --switches")
    four = six.started("-N4", "--switches=2", "--gres=gpu:1", sleep_s=300)
    six.cancel(four.id)
    waits = six.sbatch("-N4", "--switches=1@600", "--gres=gpu:1", sleep_s=300)
    until(lambda: six.job(waits).reason != "None", "Slurm has looked at it")
    assert six.job(waits).state == "PENDING"
    six.cancel(waits)
    six.wait_idle()
    halves(six, "g3", "g4")
    one = six.started("-N3", "--switches=1@600", "--gres=gpu:2", sleep_s=300)
    assert sorted(by_block(one.gpus)) == [0, 3]
    two = six.started("-N2", "--switches=1@600", "--gres=gpu:2", sleep_s=300)
    assert sorted(by_block(two.gpus)) == [0, 2]


def test_segments_stay_whole(six: Cluster, network: str) -> None:
    """Four nodes in twos: two of each block, and of each those that are begun."""
    if network != "block" or six.release < (24, 5):
        pytest.skip("--segment is for topology/block, since 24.05")
    halves(six, "g1", "g3", "g5")
    job = six.started("-N4", "--segment=2", "--gres=gpu:2", sleep_s=300)
    assert by_block(job.gpus) == [2, 2]
    assert {"g1", "g3", "g5"} < set(job.gpus)


def test_a_job_without_room_in_one_block_is_told_so(six: Cluster, network: str) -> None:
    """One free node of each block or leaf switch: below joined switches that is enough."""
    six.occupy_nodes(dict.fromkeys(("g2", "g3", "g5", "g6"), range(4)))
    options = ["-N2", "--gres=gpu:4"]
    now = json.loads(six.run("ctl", "gputopo report --json").out)["now"]
    assert now["largest"] == ([1, 4] if network == "block" else [2, 4])
    tried = six.run("ctl", ["gputopo", "try", *options], user="alice").out
    if network == "tree":
        assert tried.startswith("It would start now on g1: 0,1,2,3, g4: 0,1,2,3")
        assert set(six.started(*options, sleep_s=300).gpus) == {"g1", "g4"}
        return
    lacks = "waits for 2 nodes of one block with 4 free GPUs each: b1 has 1 (g1), b2 has 1 (g4)."
    assert tried.startswith(f"It would not start now: it {lacks}")
    waits = six.sbatch(*options, sleep_s=300)
    until(lambda: six.job(waits).reason not in ("", "None"), "Slurm has looked at it")
    found = six.run("ctl", ["gputopo", "why", str(waits)]).out
    assert found.startswith(f"Job {waits} {lacks}")
    assert "g1, g4" not in found


#: A scontrol that tells of the network of last week, beside Slurm's other commands.
LAST_WEEK = "/run/last-week"
SCONTROL = f"""#!/bin/sh
case "$*" in *"show topology"*) exec cat {LAST_WEEK}/shown ;; *) exec scontrol "$@" ;; esac
"""


def test_nodes_that_slurm_refuses_leave_its_own(six: Cluster, network: str) -> None:
    """The engine has a network of last week: its nodes are in two blocks, and Slurm says no."""
    if network != "block":
        pytest.skip("a tree whose switches are joined refuses no nodes")
    six.run("ctl", ["mkdir", "-p", LAST_WEEK])
    six.put("ctl", f"{LAST_WEEK}/scontrol", SCONTROL)
    six.run(
        "ctl",
        f"chmod +x {LAST_WEEK}/scontrol; ln -sf $(dirname $(which squeue))/s[!c]* {LAST_WEEK}",
    )
    shown = (
        "BlockName=b1 BlockIndex=0 Nodes=g1,g[3-4] BlockSize=3\n"
        "BlockName=b2 BlockIndex=1 Nodes=g2,g[5-6] BlockSize=3"
    )
    six.put("ctl", f"{LAST_WEEK}/shown", shown)
    configure_engine(six, f"slurm: {{bin_dir: {LAST_WEEK}}}")
    until_asked(six)
    halves(six, "g3", "g4")
    job = six.started("-N2", "--gres=gpu:2", sleep_s=300)
    assert sorted(by_block(job.gpus)) == [0, 2]
    log = six.read("ctl", "/var/log/slurm/slurmctld.log")
    assert re.search(rf"gputopo: job={job.id} added_us=\d+ result=alt", log)


def test_what_slurmctld_has_in_force_counts_and_not_a_file(six: Cluster, network: str) -> None:
    """Nodes g3 and g4 change places in the file that slurmctld reads, and it is changed back."""
    first = "b1" if network == "block" else "s1"
    before = six.status()["network"]["since"]
    moved = NETWORKS[network].replace("g[1-3]", "g1,g2,g4").replace("g[4-6]", "g3,g5,g6")
    six.put("ctl", SLURMS, moved)
    six.restart_slurmctld()
    six.put("ctl", SLURMS, NETWORKS[network])
    until(lambda: six.status()["network"]["since"] > before, "the engine has noticed", 30)
    halves(six, "g1", "g4")
    job = six.started("-N2", "--gres=gpu:2", sleep_s=300)
    assert set(job.gpus) == {"g1", "g4"}
    assert f"nodes below {first}" in job.fields["AdminComment"]


def test_without_a_network_of_ours_the_nodes_are_slurms(six: Cluster, network: str) -> None:
    """gputopo.yaml names no file: only GPUs are chosen, and doctor says why."""
    config = six.read("ctl", "/etc/slurm/gputopo.yaml")
    six.put("ctl", "/etc/slurm/gputopo.yaml", config.replace(f"topology_conf: {OURS}\n", ""))
    six.engine("restart")
    halves(six, "g3", "g4")
    job = six.started("-N2", "--gres=gpu:2", sleep_s=300)
    assert sorted(by_block(job.gpus)) == [0, 2]
    assert all(gpus in ((0, 1), (2, 3)) for gpus in job.gpus.values())
    doctor = six.run("ctl", "gputopo doctor", check=False).out
    assert f"TopologyPlugin is topology/{network}" in doctor
    assert f"as its topology/{network}" in six.run("ctl", f"gputopo explain {job.id}").out


SEVERAL = """\
- topology: racks
  cluster_default: true
  tree:
    switches:
      - {switch: s1, nodes: "g[1,4]"}
      - {switch: s2, nodes: "g[2,3,5,6]"}
      - {switch: top, children: "s[1-2]"}
- topology: domains
  block:
    block_sizes: [3, 6]
    blocks:
      - {block: b1, nodes: "g[1-3]"}
      - {block: b2, nodes: "g[4-6]"}
"""
TOPOLOGY_YAML = "/etc/slurm/topology.yaml"
#: Of the partition that has the second one.
DOMAINS = ("-p", "domains")


@pytest.fixture
def several(six: Cluster) -> Iterator[Cluster]:
    """A topology.yaml that Slurm and the engine read; partition `domains` has blocks."""
    if six.release < (25, 5):
        pytest.skip("this Slurm does not read topology.yaml")
    six.put("ctl", TOPOLOGY_YAML, SEVERAL)
    six.configure_extra("PartitionName=domains Nodes=g[1-6] DefaultTime=10 Topology=domains")
    configure_engine(six, f"topology_conf: {TOPOLOGY_YAML}")
    yield six
    # A job whose partition is gone before it has ended stays in Slurm's queue.
    six.run("ctl", "scancel -u alice; scancel -u bob")
    six.wait_idle()
    six.run("ctl", f"rm -f /cluster/extra.conf {TOPOLOGY_YAML}")
    six.switch("gputopo")


def test_each_partition_has_the_network_of_its_own(several: Cluster) -> None:
    """Of the halves g1 and g4 are below one switch, and g1 and g3 in one block."""
    halves(several, "g1", "g3", "g4")
    tree = several.started("-N2", "--gres=gpu:2", sleep_s=300)
    assert set(tree.gpus) == {"g1", "g4"}
    assert "nodes below s1" in tree.fields["AdminComment"]
    several.cancel(tree.id)
    # Slurm starts nothing on a node while a job's end there is not over.
    until(lambda: not several.run("ctl", "squeue -h -u alice").out.strip(), "it has gone")
    block = several.started(*DOMAINS, "-N2", "--gres=gpu:2", sleep_s=300)
    assert set(block.gpus) == {"g1", "g3"}
    assert "nodes below b1" in block.fields["AdminComment"]
    doctor = several.run("ctl", "gputopo doctor", check=False).out
    assert f"and so does topology_conf: {TOPOLOGY_YAML}" in doctor


def test_segments_stay_whole_in_the_partition_of_blocks(several: Cluster) -> None:
    halves(several, "g1", "g3", "g5")
    job = several.started(*DOMAINS, "-N4", "--segment=2", "--gres=gpu:2", sleep_s=300)
    assert by_block(job.gpus) == [2, 2]
    assert {"g1", "g3", "g5"} < set(job.gpus)
