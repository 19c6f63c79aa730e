"""A SlurmClient over slurmrestd: JSON over HTTP over a Unix socket, no process per question."""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
from collections.abc import Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from gres_topology import hostlist
from slurm_plugin.base.rows_file import NO_JSON
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm import releases
from slurm_plugin.slurm.clients import rows, scontrol_tables, squeue_table, update_text
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import NOW, JobUpdate, QueuedJob, SlurmJob, SlurmNode
from slurm_plugin.slurm.runner import MAX_BYTES, Runner

# The JobUpdate fields that the API holds as they are, as numbers that may be unset, as lists.
_PLAIN = {
    "tres_bind": "tres_bind",
    "cpus_per_tres": "cpus_per_tres",
    "memory_per_tres": "memory_per_tres",
    "min_cpus": "minimum_cpus",
    "cpus_per_task": "cpus_per_task",
    "min_cpus_per_node": "minimum_cpus_per_node",
    "features": "constraints",
    "admin_comment": "admin_comment",
}
_TRES = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket")
_NUMBERS = {"memory_per_node_mb": "memory_per_node", "memory_per_cpu_mb": "memory_per_cpu"}
_NODES = {"req_nodes": "required_nodes", "exc_nodes": "excluded_nodes"}
#: What scontrol is asked for: no API call changes it in every release.
_BY_SCONTROL = ("num_tasks", "time_limit", "site_factor", "priority", "is_released")
#: The newest API of 22.05.
_OLD = (0, 0, 38)


_NOBODY = "nobody listens there; start slurmrestd or set slurm.rest_socket"
_ITS_USERS = "it answers only its own user and root"
_WHY: dict[type[Exception], str] = {
    PermissionError: "permission denied; the engine must run as slurmrestd's user, or as root",
    FileNotFoundError: _NOBODY,
    ConnectionRefusedError: _NOBODY,
}


class _Release(msgspec.Struct):
    release: str = ""


class _Meta(msgspec.Struct):
    """What every reply ends with."""

    slurm: _Release | None = None
    Slurm: _Release | None = None


class _Envelope(msgspec.Struct):
    errors: list[rows.SlurmFault] = []
    meta: _Meta = msgspec.field(default_factory=_Meta)


class UnixConnection(http.client.HTTPConnection):
    """An HTTP/1.1 connection to a server that listens on a Unix socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket; OSError where nobody listens."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(str(self._path))
        except OSError:
            self.sock.close()
            raise


class Rest(SlurmClient):
    """A SlurmClient over the socket of a slurmrestd that our user may use.

    slurm.conf's values and the default partition, for which the API has no call, come by command.
    """

    def __init__(self, path: Path, run: Runner, timeout_s: float = 10.0) -> None:
        super().__init__(run)
        self._path = path
        self._timeout_s = timeout_s

    @cached_property
    def _api(self) -> tuple[int, ...]:
        """The newest API that this slurmrestd offers, such as (0, 0, 42)."""
        _, body = self._call("/openapi/v3")
        versions = re.findall(rb"/slurm\\?/v(\d+)\.(\d+)\.(\d+)\\?/job", body)
        versions += re.findall(rb"v(\d+)\.(\d+)\.(\d+)_job", body)
        if not versions:
            raise SlurmError(
                f"slurmrestd at {self._path}: offers no API of slurmctld;"
                " start it with -s openapi/slurmctld (22.05: -s openapi/v0.0.38)"
            )
        return max(tuple(map(int, version)) for version in versions)

    @property
    def _is_old(self) -> bool:
        return self._api <= _OLD

    def _path_of(self, what: str) -> str:
        return f"/slurm/v{'.'.join(map(str, self._api))}/{what}"

    def version(self) -> str:
        """The release of the controller's host, as slurmrestd knows it."""
        try:
            meta = msgspec.json.decode(self._get("ping/"), type=_Envelope).meta
        except NO_JSON as error:
            raise SlurmError(f"slurmrestd at {self._path}: ping is no JSON: {error}") from error
        text = next((part.release for part in (meta.slurm, meta.Slurm) if part), "")
        releases.parse_version(text)
        return text

    def nodes(self) -> list[SlurmNode]:
        """Every node, by name."""
        nodes = rows.nodes(self._get("nodes/"), "slurmrestd: nodes")
        return scontrol_tables.with_cpus(self._run, nodes) if self._is_old else nodes

    def jobs(self) -> list[SlurmJob]:
        """Every job the controller holds, by id."""
        return rows.jobs(self._get(self._jobs_path), "slurmrestd: jobs")

    def queue(self) -> list[QueuedJob]:
        """Every job that waits or holds resources, by id."""
        jobs = rows.queue(self._get(self._jobs_path), "slurmrestd: jobs")
        if self._is_old:
            return squeue_table.with_cpus_per_task(self._run, jobs)
        late = self._commands.exclusive
        return squeue_table.with_exclusive(self._run, jobs) if late else jobs

    @property
    def _jobs_path(self) -> str:
        return "jobs/" if self._is_old else "jobs/?flags=ALL&flags=DETAIL"

    def update(self, jobs: Sequence[str], change: JobUpdate) -> None:
        """One POST per job over one connection.

        By scontrol: array tasks, everything on 22.05, and fields that some API does not have.
        """
        if not jobs or change == JobUpdate():
            return
        by_scontrol = self._is_old or any(
            getattr(change, name) is not None for name in _BY_SCONTROL
        )
        posted = [] if by_scontrol else [job for job in jobs if job.isdecimal()]
        refused = self._post(posted, change)
        try:
            super().update([job for job in jobs if job not in posted], change)
        except SlurmError as error:
            refused.append(str(error))
        if refused:
            raise SlurmError("; ".join(refused[:3]))

    def _post(self, jobs: Sequence[str], change: JobUpdate) -> list[str]:
        """What was refused; SlurmError where slurmrestd does not answer."""
        body = json.dumps(self._description(change)).encode()
        refused = []
        with closing(UnixConnection(self._path, self._timeout_s)) as connection:
            for job in jobs:
                path = self._path_of(f"job/{job}")
                status, reply = self._exchange(connection, "POST", path, body)
                try:
                    self._check(f"update of job {job}", status, reply)
                except SlurmError as error:
                    refused.append(str(error))
        return refused

    def _description(self, change: JobUpdate) -> dict[str, Any]:
        """The change as the API's job description."""
        fields: dict[str, Any] = {}
        for name in _TRES:
            if (text := getattr(change, name)) is not None:
                fields[name] = update_text.tres(text, "/")
        for name, key in (_PLAIN | _NUMBERS).items():
            if (value := getattr(change, name)) is not None:
                fields[key] = _number(value) if name in _NUMBERS else value
        for name, key in _NODES.items():
            if (text := getattr(change, name)) is not None:
                # An empty list would leave the nodes as they are; one empty name clears them.
                fields[key] = list(hostlist.expand(text)) if text else [""]
        if change.num_nodes is not None:
            fields["minimum_nodes"], high = change.num_nodes
            fields |= {"maximum_nodes": high} if high else {}
        if change.begin_time is not None:
            at = int(time.time()) if change.begin_time == NOW else change.begin_time
            fields["begin_time"] = _number(at)
        return fields

    def _get(self, what: str) -> bytes:
        status, body = self._call(self._path_of(what))
        self._check(what.partition("/")[0], status, body)
        return body

    def _call(self, path: str) -> tuple[int, bytes]:
        with closing(UnixConnection(self._path, self._timeout_s)) as connection:
            return self._exchange(connection, "GET", path, None)

    def _exchange(
        self, connection: UnixConnection, method: str, path: str, body: bytes | None
    ) -> tuple[int, bytes]:
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            body = answer.read(MAX_BYTES + 1)
        except TimeoutError as error:
            why = f"no answer within {self._timeout_s:g} s; is slurmctld up?"
            raise SlurmError(f"slurmrestd at {self._path}: {why}") from error
        except (OSError, http.client.HTTPException) as error:
            closed = f"closed the connection ({str(error) or type(error).__name__}); {_ITS_USERS}"
            why = _WHY.get(type(error), closed)
            raise SlurmError(f"slurmrestd at {self._path}: {why}") from error
        if len(body) > MAX_BYTES:
            raise SlurmError(f"slurmrestd: {path}: more than {MAX_BYTES >> 20} MiB of answer")
        return answer.status, body

    @staticmethod
    def _check(what: str, status: int, body: bytes) -> None:
        """Raises SlurmError with Slurm's words for a reply that is an error."""
        try:
            faults = [str(fault) for fault in msgspec.json.decode(body, type=_Envelope).errors]
        except NO_JSON:
            faults = []
        if faults or status >= http.client.BAD_REQUEST:
            shown = "; ".join(faults[:3]) or body[:200].decode(errors="replace") or "no message"
            # A question that fails: most often there is nobody to ask.
            hint = "; is slurmctld up?" if "update" not in what else ""
            raise SlurmError(f"slurmrestd: {what}: {status}: {' '.join(shown.split())}{hint}")


def _number(value: int) -> dict[str, Any]:
    return {"set": True, "number": value}
