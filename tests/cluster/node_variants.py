"""A node with other GRES than its machine has: MIG slices, two types, shards, MPS."""

from collections.abc import Iterator
from contextlib import contextmanager

from select_harness import clear

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

#: A sed script for gres.conf: lines of dgx2's own, to be changed without dgx1's.
DGX2 = r"s/^NodeName=dgx\[1-2\] \(.*\)/NodeName=dgx1 \1\nNodeName=dgx2 \1/"
RESTART_SLURMD = "kill $(pidof slurmd); while pidof slurmd; do sleep 0.1; done; slurmd"
#: dgx2's GPUs without Type, Cores and Links: for other_gpus().
FILES_ALONE = (
    "s/gpu:v100:8/gpu:8/",
    r"s/^NodeName=dgx\[1-2\]/NodeName=dgx1/;$a NodeName=dgx2 Name=gpu File=/dev/fakegpu[0-7]",
)


@contextmanager
def other_gpus(cluster: Cluster, slurm: str, gres: str, types: str = "gpu,shard") -> Iterator[None]:
    """dgx2 with other GRES: sed scripts for slurm.conf and gres.conf, while the block lasts."""
    split = r"/^NodeName=dgx\[1-2\]/{h;s/dgx\[1-2\]/dgx1/;p;g;s/dgx\[1-2\]/dgx2/;" + slurm + "}"
    cluster.run("ctl", ["sed", "-i", split, "/cluster/slurm.conf"])
    cluster.run("ctl", ["sed", "-i", f"s/^GresTypes=.*/GresTypes={types}/", "/cluster/slurm.conf"])
    cluster.run("ctl", ["sed", "-i", gres, "/cluster/gres.conf"])
    try:
        cluster.restart_slurmctld()
        cluster.run("dgx2", RESTART_SLURMD)
        wait_node(cluster)
        yield
    finally:
        clear(cluster)
        cluster.switch("gputopo")
        cluster.run("dgx2", RESTART_SLURMD)
        wait_node(cluster)


def wait_node(cluster: Cluster, node: str = "dgx2") -> None:
    """The node is idle; a drain for changed GRES is lifted."""

    def idle() -> bool:
        cluster.run("ctl", f"scontrol update nodename={node} state=resume", check=False)
        return cluster.run("ctl", f"sinfo -h -n {node} -p gpu -o %T").out.strip() == "idle"

    until(idle, f"{node} is idle", 60)
