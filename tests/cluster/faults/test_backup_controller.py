"""A backup slurmctld takes over: with the plugin and without an engine, which it does not need."""

from collections.abc import Iterator

import pytest
from live_harness import PICKY, TAKEN, by_policy, visible, watched
from select_harness import stock_pair

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin]

TAKE_OVER_S = 90
HINT = "--comment=gpu-topo: pattern=ring"


@pytest.fixture
def backup(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with ctl2 on standby; ctl is in charge again at the end."""
    with cluster.backup_host():
        try:
            yield cluster
        finally:
            cluster.slurmctld("start")
            answered(cluster)


def answered(cluster: Cluster) -> None:
    """Waits until some slurmctld answers."""
    until(
        lambda: not cluster.run("ctl", "timeout 5 squeue", check=False).code, "squeue", TAKE_OVER_S
    )


def take_over(cluster: Cluster) -> None:
    """slurmctld on ctl dies; returns when the one on ctl2 answers."""
    cluster.saved()
    cluster.slurmctld("kill")
    answered(cluster)
    assert cluster.run("ctl", "clusterctl slurmctld pid", check=False).code


@pytest.mark.long("a standby takes over after more than a minute")
def test_the_backup_goes_on_without_an_engine(backup):
    """Jobs keep their GPUs there and back; new ones get Slurm's own, then ours again."""
    backup.occupy("dgx1", TAKEN)
    with watched(backup):
        held = backup.submit_many([("-w", node, "--gres=gpu:3") for node in ("dgx2", "amd1")])
        gpus = backup.running_gpus(held)
        assert gpus == [by_policy({}, (3,), (node,)) for node in ("dgx2", "amd1")]
        picky = backup.sbatch("-w", "dgx1", "--gres=gpu:2", PICKY, sleep_s=300)
        backup.wait_postponed(picky)
        used = backup.gres_used()

        take_over(backup)
        assert backup.run("ctl2", "clusterctl engine pid", check=False).code
        until(lambda: backup.gres_used() == used, "the same GPUs in use")
        assert backup.running_gpus(held) == gpus
        assert backup.job(picky).state == "PENDING"
        slurms = stock_pair(backup, "bridged1")
        new = backup.submit_many([("-w", "bridged1", "--gres=gpu:2", HINT)])
        assert backup.running_gpus(new) == [slurms]
        backup.run("ctl", f"scontrol update jobid={picky} starttime=now")
        assert backup.wait_running(picky, timeout_s=60).gpus == {"dgx1": (0, 5)}
        assert "gputopo" in backup.slurmctld_log(2000, host="ctl2")

        used = backup.gres_used()
        backup.slurmctld("start")
        answered(backup)
        # Until a node has registered anew, Slurm 22.05 starts jobs on it without their GPUs, and
        # counts those as in use for ever; stock Slurm does the same.
        until(lambda: backup.gres_used() == used, "the nodes have registered")
        assert backup.running_gpus([*held, *new]) == [*gpus, slurms]
        assert visible(backup, held) == [got for pair in gpus for got in pair.values()]
        again = backup.submit_many([("-w", "bridged1", "--gres=gpu:2", HINT)])
        assert backup.running_gpus(again) == [by_policy(slurms, (2,), ("bridged1",))]
        backup.end([*held, *new, *again, picky], {"dgx1": TAKEN})
