"""Nodes that register themselves (`slurmd -Z`) and are deleted, declared by their features."""

import re
from collections.abc import Iterator

import pytest
from live_harness import CONFIG, got_by

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.select_plugin,
    pytest.mark.long("slurmctld starts twice for room in its table; unit tests have the rest"),
]

FEATURE = "nvlink&v100"
SIZE = "CPUs=16 Sockets=2 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=4000 Gres=gpu:v100:8"
#: Beside dgx2's slurmd, on its GPUs, with a port and folders of its own.
STARTS = """
d=/tmp/pods/$1; mkdir -p $d/spool
sed -e "s|^SlurmdSpoolDir=.*|SlurmdSpoolDir=$d/spool|" \
    -e "s|^SlurmdPidFile=.*|SlurmdPidFile=$d/pid|" /etc/slurm/slurm.conf >$d/slurm.conf
cp /etc/slurm/cgroup.conf $d/
sed -n "s/^NodeName=dgx[^ ]*/NodeName=$1/p" /etc/slurm/gres.conf >$d/gres.conf
slurmd -Z -N $1 -f $d/slurm.conf --conf "Port=$2 Feature=rack7,v100,nvlink $3"
"""
ENDS = 'kill "$(cat /tmp/pods/$1/pid)"; while pgrep -f "slurmd -Z -N $1"; do sleep 0.1; done'


@pytest.fixture
def room(cluster: Cluster) -> Iterator[None]:
    """slurmctld has room for more nodes, and gputopo.yaml a set of nodes by features."""
    cluster.configure_extra("MaxNodeCount=12")
    rule = f"nodes:\n  - {{features: {FEATURE}, topology: dgx1v}}\n"
    cluster.put("ctl", CONFIG, cluster.read("ctl", CONFIG).replace("nodes:\n", rule, 1))
    cluster.engine("restart")
    yield
    for name in ("pod1", "pod2"):
        cluster.run("dgx2", ["sh", "-c", ENDS, "", name], check=False)
        delete(cluster, name, check=False)
    cluster.run("dgx2", "rm -rf /tmp/pods")
    cluster.run("ctl", "rm -f /cluster/extra.conf")
    cluster.switch("gputopo")


def register(cluster: Cluster, name: str, port: int) -> None:
    """A node registers itself, and the engine knows it."""
    cluster.run("dgx2", ["sh", "-c", STARTS, "", name, str(port), SIZE])
    counts(cluster, 1)


def delete(cluster: Cluster, name: str, *, check: bool = True) -> None:
    """It is gone for Slurm."""
    cluster.run("ctl", f"scontrol update nodename={name} state=down reason=gone", check=check)
    cluster.run("ctl", f"scontrol delete nodename={name}", check=check)


def counts(cluster: Cluster, nodes: int) -> None:
    """The engine finds so many nodes of the feature."""
    what = f"{nodes} nodes of {FEATURE} are known"
    until(lambda: cluster.status().get("nodes_by_feature") == {FEATURE: nodes}, what, 60)


def best_of_three(cluster: Cluster, node: str) -> tuple[int, ...]:
    """The GPUs of a job of three on a node."""
    return got_by(cluster, "-w", node, "--gres=gpu:3")[node]


def test_a_node_comes_is_advised_and_goes_and_another_has_its_place(
    cluster: Cluster, room: None
) -> None:
    best = best_of_three(cluster, "dgx1")
    assert best != (0, 1, 2)  # Slurm's own
    for at, name in enumerate(("pod1", "pod2", "pod1")):
        register(cluster, name, 6901 + at)
        assert cluster.status()["nodes_left_to_slurm_count"] == 0
        assert best_of_three(cluster, name) == best
        doctor = cluster.run("ctl", "gputopo doctor", check=False)
        assert re.search(rf"nodes: .*\b{name}\b.*: 8 GPUs each", doctor.out)
        assert f"nodes with {FEATURE}: 1" in cluster.run("ctl", "gputopo status").out
        cluster.run("dgx2", ["sh", "-c", ENDS, "", name])
        delete(cluster, name)
        counts(cluster, 0)
        assert best_of_three(cluster, "dgx1") == best
        assert (
            f"no node was found with {FEATURE}"
            in cluster.run("ctl", "gputopo doctor", check=False).out
        )


def test_a_node_that_is_there_in_name_only_changes_nothing(cluster: Cluster, room: None) -> None:
    """`State=FUTURE`: Slurm shows it to nobody and keeps its place in the table."""
    best = best_of_three(cluster, "dgx1")
    create = f"scontrol create nodename=pod1 state=FUTURE feature=v100,nvlink port=6901 {SIZE}"
    cluster.run("ctl", create)
    assert best_of_three(cluster, "dgx1") == best
    register(cluster, "pod2", 6902)
    assert best_of_three(cluster, "pod2") == best
    delete(cluster, "pod1")
    assert best_of_three(cluster, "pod2") == best
