"""start-many: time added per job start with 64 compute nodes, all on this host.

One container runs 64 slurmd (`slurmd -N many01` ...), each with its own port and eight fake
GPUs wired as a DGX-1V; a partition of their own makes all of them candidates of every job.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from bench.live.cluster import ASSETS, BenchCluster, clean
from bench.live.start import added_by_mix, figure
from bench.measure import Figure

NODES = 64
JOBS = 300
FIRST_PORT = 17_001
NAMES = f"many[01-{NODES:02d}]"
#: slurmctld must reach each of them itself: the other nodes' slurmd do not know them.
EXTRA = f"""\
SlurmdSpoolDir=/var/spool/slurmd.%n
SlurmdPidFile=/run/slurmd.%n.pid
SlurmdLogFile=/var/log/slurm/slurmd.%n.log
TreeWidth={NODES + 8}
NodeName={NAMES} NodeHostname=many NodeAddr=many Port=[{FIRST_PORT}-{FIRST_PORT + NODES - 1}] \
Sockets=2 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=4000 Gres=gpu:v100:8 State=UNKNOWN
PartitionName=many Nodes={NAMES} DefaultTime=10 MaxTime=INFINITE State=UP
"""


def _docker(*args: str) -> str:
    done = subprocess.run(["docker", *args], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def configure(cluster: BenchCluster) -> None:
    """The nodes in slurm.conf, gres.conf and gputopo.yaml, until the next reset."""
    cluster.put("ctl", "/cluster/extra.conf", EXTRA)
    cluster.sh(
        "clusterctl configure gputopo;"
        f" sed -n 's/^NodeName=dgx\\[1-2\\]/NodeName={NAMES}/p' /cluster/gres.conf >/tmp/many.gres;"
        " cat /tmp/many.gres >>/cluster/gres.conf;"
        f" sed -i 's/^nodes:.*/&\\n  - {{nodes: \"{NAMES}\", topology: dgx1v}}/'"
        " /etc/slurm/gputopo.yaml;"
        " clusterctl engine restart"
    )


@contextmanager
def many_nodes(cluster: BenchCluster) -> Iterator[None]:
    """The container with the slurmd, for the length of a block."""
    node = cluster.container("dgx1")
    options = ["--init", "--hostname=many", "--network-alias=many", "--cap-add=SYS_NICE"]
    options += [f"--network={cluster.project}_default", f"--volumes-from={node.id}"]
    names = " ".join(f"many{number:02d}" for number in range(1, NODES + 1))
    options += ["-e", f"NODES={names}", "-e", "FAKE_GPUS=8", "--entrypoint=/entrypoint-many"]
    made = _docker("create", *options, node.image.id)
    try:
        _docker("cp", "-q", str(ASSETS / "entrypoint-many"), f"{made}:/entrypoint-many")
        _docker("start", made)
        # Not before: slurmctld looks up every node's address when it starts.
        cluster.restart_slurmctld()
        cluster.wait_nodes_idle(timeout_s=180)
        yield
    finally:
        _docker("rm", "-f", "-v", made)


def run() -> Iterator[Figure]:
    """The same mix as `start`, on 64 nodes."""
    with clean() as cluster:
        configure(cluster)
        with many_nodes(cluster):
            added = added_by_mix(cluster, JOBS, ("many",))
        yield figure("start.64_nodes", added, nodes=NODES)
