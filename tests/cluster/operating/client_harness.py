"""Calls the three Slurm clients inside the controller, where Slurm is, and brings back nouns."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import ClusterError
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm import JobUpdate, QueuedJob, SlurmJob, SlurmNode, SlurmPartition

REST_USER = "gputopo-rest"
REST_SOCKET = "/run/gputopo-rest/rest.sock"
PYTHON = "/opt/gputopo/bin/python"

# Runs in the controller: one call of one client, its answer as JSON.
_CALL = """
import dataclasses, json, sys
from pathlib import Path
from slurm_plugin.config.sections import SlurmConfig
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm import JobUpdate, choose
kind, socket, call, arguments = json.loads(sys.argv[1])
settings = SlurmConfig(client=kind, rest_socket=Path(socket), bin_dir=None, timeout_s=10)
try:
    client = choose.client(settings)
    if call == "update":
        change = {k: tuple(v) if isinstance(v, list) else v for k, v in arguments[1].items()}
        arguments = [arguments[0], JobUpdate(**change)]
    found = getattr(client, call)(*arguments)
except SlurmError as error:
    print(json.dumps({"error": str(error)}))
else:
    plain = lambda noun: dataclasses.asdict(noun) if dataclasses.is_dataclass(noun) else noun
    found = [plain(noun) for noun in found] if isinstance(found, list) else plain(found)
    print(json.dumps({"found": found}))
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

_Noun = TypeVar("_Noun", SlurmNode, SlurmJob, QueuedJob, SlurmPartition)


def start_rest(cluster: Cluster) -> None:
    """A slurmrestd on REST_SOCKET, as REST_USER."""
    cluster.run("ctl", _START_REST)


def stop_rest(cluster: Cluster) -> None:
    """Its end; none is no error."""
    cluster.run("ctl", _STOP_REST, check=False)


def install_pyslurm(cluster: Cluster) -> str:
    """PySlurm into the controller; the line that says what became of it.

    Only its tests need it and building it takes minutes: they wait here, nobody else does.
    """
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
        told = json.dumps([self.kind, self.socket, name, arguments])
        line = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
        done = self.cluster.run("ctl", [*line, PYTHON, "-c", _CALL, told])
        reply = json.loads(done.out)
        if "error" in reply:
            raise SlurmError(reply["error"])
        return reply["found"]

    def nodes(self) -> dict[str, SlurmNode]:
        """By name."""
        return {row["name"]: _noun(SlurmNode, row) for row in self.call("nodes")}

    def queue(self) -> dict[str, QueuedJob]:
        """By the name an update uses."""
        return {row["name"]: _noun(QueuedJob, row) for row in self.call("queue")}

    def queued(self, name: str | int) -> QueuedJob:
        """One of the queue."""
        return self.queue()[str(name)]

    def jobs(self) -> dict[int, SlurmJob]:
        """By id."""
        return {row["job_id"]: _noun(SlurmJob, row) for row in self.call("jobs")}

    def job(self, job_id: int) -> SlurmJob | None:
        """One job."""
        row = self.call("job", job_id)
        return None if row is None else _noun(SlurmJob, row)

    def partitions(self) -> dict[str, SlurmPartition]:
        """By name."""
        return {row["name"]: _noun(SlurmPartition, row) for row in self.call("partitions")}

    def update(self, jobs: list[str], change: JobUpdate) -> None:
        """The change, without what it leaves alone."""
        told = {name: value for name, value in asdict(change).items() if value is not None}
        self.call("update", jobs, told)


def _noun(kind: type[_Noun], row: dict[str, Any]) -> _Noun:
    """The dataclass again: JSON has made lists of its tuples."""
    names = {field.name for field in fields(kind)}
    return kind(**{name: _tuples(value) for name, value in row.items() if name in names})


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        return {key: _tuples(inner) for key, inner in value.items()}
    return value
