"""start-many: time added per job start with 64 compute nodes, all on this host.

One container runs 64 slurmd (`slurmd -N many01` ...), each with its own port and eight fake
GPUs wired as a DGX-1V; a partition of their own makes all of them candidates of every job.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.live.cluster import ASSETS, BenchCluster, clean
from bench.live.start import added_by_mix, figure
from bench.measure import Figure
from slurm_cluster.hosts import until

NODES = 64
#: Who chooses.
POLICY = os.environ.get("START_POLICY", "horizon")
JOBS = 300
FIRST_PORT = 17_001
PARTITION = "many"
MACHINE = (
    "Sockets=2 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=4000 Gres=gpu:v100:8 State=UNKNOWN"
)
#: slurmctld must reach each of them itself: the other nodes' slurmd do not know them. A slurmd has
#: twelve threads otherwise, and of many thousand of them the machine runs out of process ids.
ALL_OF_THEM = """\
SlurmdSpoolDir=/var/spool/slurmd.%n
SlurmdPidFile=/run/slurmd.%n.pid
SlurmdLogFile=/var/log/slurm/slurmd.%n.log
SlurmdParameters=config_overrides,conmgr_threads=2
TreeWidth={tree}
"""
ALIKE = "NodeName={names} NodeHostname=many NodeAddr=many Port=[{first}-{last}] {machine}\n"
TOGETHER = "PartitionName={name} Nodes={members} DefaultTime=10 MaxTime=INFINITE State=UP\n"
#: Only named: there is no slurmd behind them, so nothing can start on them.
DECLARED = "NodeName={names} NodeAddr=many {machine}\n"


@dataclass(frozen=True)
class ManyNodes:
    """So many nodes with a slurmd each, and so many that slurm.conf names as down."""

    count: int
    declared: int = 0

    @property
    def names(self) -> str:
        """Slurm's host list of those with a slurmd."""
        return _host_list("many", self.count)

    def slurm_conf(self) -> str:
        """The lines of slurm.conf for both kinds and their partition."""
        members, lines = self.names, ""
        if self.declared:
            without = _host_list("declared", self.declared)
            members = f"{members},{without}"
            lines = DECLARED.format(names=without, machine=MACHINE.replace("UNKNOWN", "DOWN"))
        last = FIRST_PORT + self.count - 1
        return (
            lines
            + ALL_OF_THEM.format(tree=min(65_533, self.count + self.declared + 8))
            + ALIKE.format(names=self.names, first=FIRST_PORT, last=last, machine=MACHINE)
            + TOGETHER.format(name=PARTITION, members=members)
        )

    def configure(self, cluster: BenchCluster) -> None:
        """The nodes in slurm.conf, gres.conf and gputopo.yaml, until the next reset."""
        cluster.put("ctl", "/cluster/extra.conf", self.slurm_conf())
        names = self.names
        cluster.sh(
            "clusterctl configure gputopo;"
            f" sed -n 's/^NodeName=dgx\\[1-2\\]/NodeName={names}/p' /cluster/gres.conf >/tmp/gres;"
            " cat /tmp/gres >>/cluster/gres.conf;"
            f" sed -i -e 's/^nodes:.*/&\\n  - {{nodes: \"{names}\", topology: dgx1v}}/'"
            f" -e 's/policy: mapa/policy: {POLICY}/'"
            " /etc/slurm/gputopo.yaml;"
            " clusterctl engine restart"
        )

    def wait_registered(self, cluster: BenchCluster) -> None:
        """Until slurmctld, freshly started, has heard of every slurmd."""
        heard = "sdiag | awk '/MESSAGE_NODE_REGISTRATION_STATUS/ {print substr($4, 7)}'"
        listed = f"sinfo -h -p {PARTITION} -t idle,mixed,allocated -o %D"
        up = listed + " | awk '{n += $1} END {print n}'"

        def missing() -> int:
            seen = min(int(cluster.sh(command).strip() or 0) for command in (heard, up))
            return self.count - seen

        until(lambda: missing() <= 0, lambda: f"{missing()} nodes register", 300)


def _host_list(prefix: str, count: int) -> str:
    return f"{prefix}[{1:0{len(str(count))}d}-{count}]"


def _docker(*args: str) -> str:
    done = subprocess.run(["docker", *args], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@contextmanager
def many_nodes(cluster: BenchCluster, nodes: ManyNodes) -> Iterator[str]:
    """The container with the slurmd, for the length of a block; its id."""
    node = cluster.container("dgx1")
    options = ["--init", "--hostname=many", "--network-alias=many", "--cap-add=SYS_NICE"]
    options += [f"--network={cluster.project}_default", f"--volumes-from={node.id}"]
    options += ["--label", f"gputopo.checkout={node.labels['gputopo.checkout']}"]
    options += ["-e", f"NODES={nodes.names}", "-e", "FAKE_GPUS=8", "--entrypoint=/entrypoint-many"]
    made = _docker("create", *options, node.image.id)
    try:
        _docker("cp", "-q", str(ASSETS / "entrypoint-many"), f"{made}:/entrypoint-many")
        _docker("start", made)
        # Not before: slurmctld looks up every node's address when it starts.
        cluster.restart_slurmctld()
        nodes.wait_registered(cluster)
        yield made
    finally:
        _docker("rm", "-f", "-v", made)


def run() -> Iterator[Figure]:
    """The same mix as `start`, on 64 nodes."""
    nodes = ManyNodes(NODES)
    with clean() as cluster:
        nodes.configure(cluster)
        with many_nodes(cluster, nodes):
            added = added_by_mix(cluster, JOBS, (PARTITION,))
        yield figure("start.64_nodes", added, nodes=NODES, policy=POLICY)
