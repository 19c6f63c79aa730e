"""Calls the three Slurm clients inside the controller, where Slurm is, and brings back nouns."""

import base64
import pickle
from dataclasses import dataclass
from typing import Any

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import ClusterError
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob, SlurmJob, SlurmNode, SlurmPartition

REST_USER = "gputopo-rest"
REST_SOCKET = "/run/gputopo-rest/rest.sock"
PYTHON = "/opt/gputopo/bin/python"

# Runs in the controller: one call of one client; what it is asked and what it answers is pickled.
_CALL = """
import base64, pickle, sys
from pathlib import Path
from slurm_plugin.config.settings import SlurmConfig
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm import choose
kind, socket, call, arguments = pickle.loads(base64.b64decode(sys.argv[1]))
settings = SlurmConfig(client=kind, rest_socket=Path(socket), bin_dir=None, timeout_s=10)
try:
    answer = getattr(choose.client(settings), call)(*arguments)
except SlurmError as error:
    answer = error
print(base64.b64encode(pickle.dumps(answer)).decode())
"""

# slurmrestd as its own user, whose privileges come from its AdminLevel. What an unprivileged
# container cannot do (namespaces) is switched off.
_START_REST = f"""
set -e
id {REST_USER} >/dev/null 2>&1 || useradd -r -M -d /nonexistent {REST_USER}
sacctmgr -iQ add user {REST_USER} account=research adminlevel=Admin >/dev/null || true
install -d -o {REST_USER} -m 700 {REST_SOCKET.rpartition("/")[0]}
rm -f {REST_SOCKET}
export SLURMRESTD_SECURITY=disable_unshare_sysv,disable_unshare_files
cd /tmp
setsid setpriv --reuid {REST_USER} --regid {REST_USER} --clear-groups \
    slurmrestd -a rest_auth/local unix:{REST_SOCKET} >/var/log/slurmrestd.log 2>&1 </dev/null &
echo $! >/run/slurmrestd.pid
for i in $(seq 100); do [ -S {REST_SOCKET} ] && exit 0; sleep 0.1; done
tail -5 /var/log/slurmrestd.log >&2
exit 1
"""
_STOP_REST = 'pid=$(cat /run/slurmrestd.pid) && rm /run/slurmrestd.pid && kill "$pid"'


def start_rest(cluster: Cluster) -> None:
    cluster.run("ctl", _START_REST)


def stop_rest(cluster: Cluster) -> None:
    """Its end; none is no error."""
    cluster.run("ctl", _STOP_REST, check=False)


def install_pyslurm(cluster: Cluster) -> str:
    """PySlurm into the controller, which takes minutes; the line that says what became of it."""
    done = cluster.cluster_sh("pyslurm")
    if done.returncode:
        raise ClusterError(f"cluster.sh pyslurm failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


@dataclass(frozen=True)
class RemoteClient:
    """One of the clients in the controller: a SlurmClient, for tests."""

    cluster: Cluster
    kind: str
    socket: str = REST_SOCKET

    def call(self, name: str, *arguments: Any) -> Any:
        """The answer; SlurmError with the words it had there."""
        user = REST_USER if self.kind == "rest" else "root"
        asked = base64.b64encode(pickle.dumps((self.kind, self.socket, name, arguments))).decode()
        line = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
        done = self.cluster.run("ctl", [*line, PYTHON, "-c", _CALL, asked])
        answer = pickle.loads(base64.b64decode(done.out))
        if isinstance(answer, SlurmError):
            raise answer
        return answer

    def nodes(self) -> dict[str, SlurmNode]:
        return {node.name: node for node in self.call("nodes")}

    def queue(self) -> dict[str, QueuedJob]:
        """By the name an update uses."""
        return {job.name: job for job in self.call("queue")}

    def queued(self, name: str | int) -> QueuedJob:
        return self.queue()[str(name)]

    def jobs(self) -> dict[int, SlurmJob]:
        return {job.job_id: job for job in self.call("jobs")}

    def partitions(self) -> dict[str, SlurmPartition]:
        return {partition.name: partition for partition in self.call("partitions")}

    def update(self, jobs: list[str], change: JobUpdate) -> None:
        self.call("update", jobs, change)
