"""The command line's side of the socket: one question, one reply, a clear error.

Who may not connect, but is in SlurmUser's group, reads a file instead: it costs the engine the same
however many read it and how often, and slurmctld nothing.
"""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_plugin.base import whole_file
from slurm_plugin.base.wire import split, unquote
from slurm_plugin.errors import EngineDown, PluginError

if TYPE_CHECKING:
    from slurm_plugin.slurm.clients.command_line import SlurmClient

MAX_REPLY = 1 << 20
#: Seconds between two writings of the engine's status for its group, and after which one that is
#: older says that the engine is gone, or hangs.
WRITE_S, OLD_S = 2.0, 10.0
#: Owner and group read it, as they do the decision log.
STATUS_MODE = 0o640
#: After a failure the select plugin does not ask for a while (breaker_s); that is no fault.
PAUSE_S = 10
#: With fewer GPU jobs that nobody asked about it may be chance.
SILENT_STARTS = 3
#: As many starts of GPU jobs, none of which could be asked about, are no chance (plugin.c: STARTS).
UNASKABLE_STARTS = 10
_NOT_RUNNING = "the engine is not running; see systemctl status gputopo"
_WHY = {
    FileNotFoundError: f"no such socket: {_NOT_RUNNING}",
    ConnectionRefusedError: f"nobody listens: {_NOT_RUNNING}",
    PermissionError: "permission denied; run this as root or SlurmUser",
}


def ask(path: Path, line: bytes, timeout_s: float = 2.0) -> tuple[str, dict[str, str]]:
    """The verb and values of the reply to a request's line.

    Raises EngineDown, with what to check, when there is none.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(timeout_s)
            sock.connect(str(path))
            sock.sendall(line)
            with sock.makefile("rb") as stream:
                reply = stream.readline(MAX_REPLY)
        if not reply.endswith(b"\n"):
            raise ConnectionResetError("the engine hung up in the middle of its reply")
    except TimeoutError as error:
        raise EngineDown(f"{path}: the engine did not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise EngineDown(f"{path}: {_WHY.get(type(error), error)}") from error
    verb, pairs = split(reply)
    return verb, {key: unquote(value) for key, value in pairs}


def status(path: Path, timeout_s: float = 2.0) -> dict[str, Any]:
    """The engine's own numbers; raises EngineDown when it does not answer."""
    try:
        verb, values = ask(path, b"status id=1\n", timeout_s)
    except EngineDown as error:
        if not isinstance(error.__cause__, PermissionError):
            raise
        return _written(status_file(path), error)
    if verb != "ok" or "json" not in values:
        raise EngineDown(f"{path}: answered {verb!r}; is it an engine of this release?")
    numbers = json.loads(values["json"])
    assert isinstance(numbers, dict)
    return numbers


def status_file(path: Path) -> Path:
    """Where the engine that listens at `path` writes its status."""
    return path.with_name(f"{path.name}.status")


def write_status(path: Path, numbers: dict[str, Any]) -> None:
    """Write the engine's status for its group; raises PluginError when that cannot be."""
    # By a clock that nobody sets, and that starts anew with the host.
    content = json.dumps({"at_s": time.monotonic(), "status": numbers})
    whole_file.replace(status_file(path), content.encode(), STATUS_MODE)


def _written(file: Path, denied: EngineDown) -> dict[str, Any]:
    """What the engine wrote last, if that is not long ago; else EngineDown."""
    try:
        kept = json.loads(whole_file.read(file, MAX_REPLY))
        age_s, numbers = time.monotonic() - kept["at_s"], dict(kept["status"].items())
    except FileNotFoundError as error:
        raise EngineDown(f"{file}: no such file: {_NOT_RUNNING}") from error
    except PluginError:
        raise denied from None  # no member of the group
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise EngineDown(f"{file}: is it of an engine of this release? {error!r}") from error
    if not 0 <= age_s <= OLD_S:
        raise EngineDown(f"{file}: not written for {OLD_S:g} s; see systemctl status gputopo")
    return numbers


def config_read_at(engine_status: dict[str, Any]) -> str:
    """When the engine read the configuration that is in force, in local time."""
    from datetime import datetime

    read_at = engine_status.get("config_read_at", 0)
    return datetime.fromtimestamp(read_at).isoformat(" ", "seconds")


def unaskable(engine_status: dict[str, Any]) -> int:
    """How many GPU jobs the select plugin told of that it could ask about none of; 0 where few."""
    heard = engine_status.get("messages", {})
    if engine_status.get("enforcement") != "select" or engine_status.get("killed"):
        return 0
    told = 0 if heard.get("place") else heard.get("started", 0)
    return told if told >= UNASKABLE_STARTS else 0


def unasked(engine_status: dict[str, Any], slurm: SlurmClient, booted: int) -> int:
    """How many GPU jobs started since the engine is in charge, if it was asked about none ever.

    `booted` is when slurmctld started, as an epoch; 0 where nobody knows. 0 where the engine does
    ask, where it should not, and for fewer starts than SILENT_STARTS. Slurm is asked only where
    there is something to count; raises SlurmError when it does not answer then.
    """
    heard = engine_status.get("messages", {})
    if engine_status.get("enforcement") != "select" or engine_status.get("killed"):
        return 0
    charge = engine_status.get("charge", {})
    if not charge.get("is_ours", True):
        return 0
    # The plugin reports every start, also of jobs that it does not ask about; and each slurmctld's
    # tells its nodes anew.
    told_at = (engine_status.get("slurm_nodes") or {}).get("told_at", 0.0)
    is_heard = bool(heard.get("place") or heard.get("started"))
    if is_heard and not 0 < told_at < booted:
        return 0
    asked_for_s = min(engine_status["uptime_s"], charge.get("since_s", float("inf")))
    since = time.time() - asked_for_s + PAUSE_S
    # What was heard may be of the slurmctld before, and this one about to tell its nodes.
    since = max(since, booted + PAUSE_S if is_heard else booted)
    starts = sum(job.state == "RUNNING" and job.start >= since for job in slurm.queue() if job.gpus)
    return starts if starts >= SILENT_STARTS else 0


def unheard(engine_status: dict[str, Any], slurm: SlurmClient, booted: int) -> int:
    """How many running jobs with GPUs came since the engine runs, if it heard of no submit ever.

    0 where it did, and for fewer than SILENT_STARTS; those of before `booted`, when slurmctld
    started, do not count. Raises SlurmError when Slurm does not answer.
    """
    if engine_status.get("messages", {}).get("submit") or engine_status.get("killed"):
        return 0
    since = max(time.time() - engine_status["uptime_s"] + PAUSE_S, booted)
    came = {job.array_id or job.job_id for job in slurm.queue() if job.gpus and job.submit >= since}
    return len(came) if len(came) >= SILENT_STARTS else 0
