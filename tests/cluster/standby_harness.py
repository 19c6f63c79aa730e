"""Two controllers with an engine each: who is in charge, and files that both have."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from live_harness import CONFIG

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

TAKE_OVER_S = 120
#: On the volume that both controllers have, as StateSaveLocation is.
SHARED = "/var/spool/slurmctld/gputopo"
LOG = f"{SHARED}/decisions.jsonl"
YAML = f"state_dir: {SHARED}\ndecision_log: {{path: {LOG}}}"


@contextmanager
def two_engines(cluster: Cluster) -> Iterator[None]:
    """A block with ctl2 and an engine there; ctl is in charge again at the end.

    Where it fails, what ctl2 logged is shown: that host is gone when all others' logs are read.
    """
    with cluster.backup_host(engine=True):
        try:
            cluster.wait_registered()
            in_charge(cluster, "ctl")
            yield
        except BaseException:
            logs = "/var/log/gputopo/engine.log /var/log/slurm/slurmctld.log"
            print(cluster.run("ctl2", f"tail -n 150 {logs}", check=False).out)
            raise
        finally:
            cluster.slurmctld("start")
            cluster.engine("start")
            answered(cluster)


@contextmanager
def sharing(cluster: Cluster) -> Iterator[None]:
    """A block in which the engines of all controllers keep their files on the same volume."""
    cluster.run("ctl", f"install -d -o slurm -g slurm -m 750 {SHARED}")
    text = cluster.read("ctl", CONFIG)
    try:
        cluster.put("ctl", CONFIG, re.sub("^decision_log:.*", YAML, text, flags=re.MULTILINE))
        cluster.engine("restart")
        cluster.wait_reconciled()
        yield
    finally:
        cluster.put("ctl", CONFIG, text)
        cluster.engine("restart")
        cluster.wait_reconciled()
        cluster.run("ctl", f"rm -rf {SHARED}")


def in_charge(cluster: Cluster, host: str) -> None:
    """Waits until the engine of this host is in charge, and no other one."""

    def only_this() -> bool:
        return all(
            cluster.status(one)["charge"]["is_ours"] == (one == host)
            for one in ("ctl", "ctl2")
            if not cluster.run(one, "clusterctl engine pid", check=False).code
        )

    until(only_this, f"{host} alone is in charge")


def answered(cluster: Cluster) -> None:
    """Waits until some slurmctld answers, and takes jobs."""
    asked = "timeout 5 squeue"
    until(lambda: not cluster.run("ctl", asked, check=False).code, "squeue", TAKE_OVER_S)
    cluster.wait_accepted()
