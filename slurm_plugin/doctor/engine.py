"""Checks of the engine: its kill switch, its socket, its answers, its log."""

from __future__ import annotations

import os
import pwd
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from slurm_plugin import version
from slurm_plugin.base import client
from slurm_plugin.doctor.finding import Finding, fail, ok, warn
from slurm_plugin.doctor.installation import Installation
from slurm_plugin.errors import EngineDown
from slurm_plugin.slurm.runner import boot_time

#: Where engine or slurmctld started within so many seconds the engine may be about to hear from
#: Slurm: it asks again every few seconds, and Slurm's commands try for ten.
SETTLED_S = 60.0
#: So long it is waited for, with so many seconds between two looks.
PATIENCE_S, AGAIN_S = 15.0, 0.2


def check_kill_switch(here: Installation) -> Iterator[Finding]:
    """The file that switches everything off is absent."""
    switch = here.config.kill_switch
    if switch.exists():
        yield fail(f"{switch} exists: everything is passed", f"rm {switch}")
    else:
        yield ok(f"{switch} is absent")


def check_file(here: Installation) -> Iterator[Finding]:
    """SlurmUser, as whom the engine runs, may read gputopo.yaml, and not everybody may write it."""
    path, so = here.config.path, "the engine does not start, or keeps an old one"
    if anybodys := _anybody_may_write(path):
        yield fail(f"anybody may write {anybodys}", f"chmod go-w {anybodys}")
    if closed := list(closed_to_slurm(path, here.slurm_config, so)):
        yield from closed
    else:
        yield ok(f"{path} can be read by SlurmUser")


def check_socket(here: Installation) -> Iterator[Finding]:
    """The socket exists, is one, and only SlurmUser (and root) may use it."""
    path = here.config.socket
    try:
        info = path.lstat()
    except FileNotFoundError:
        yield fail(f"{path} is missing", "systemctl restart gputopo")
        return
    except PermissionError:
        yield fail(f"{path} cannot be seen", "run doctor as root or SlurmUser")
        return
    if not stat.S_ISSOCK(info.st_mode):
        yield fail(f"{path} is not a socket", "move the file away, restart gputopo")
        return
    mode = stat.S_IMODE(info.st_mode)
    if mode & 0o077:
        yield fail(f"{path} has mode {mode:04o}", f"chmod 0600 {path}")
    wanted = slurm_user(here.slurm_config)
    if wanted is not None and info.st_uid != wanted:
        yield fail(
            f"{path} belongs to {_user_name(info.st_uid)}, SlurmUser is {_user_name(wanted)}",
            "set User= and Group= of gputopo.service to SlurmUser, restart gputopo",
        )
    elif not mode & 0o077:
        yield ok(f"{path} {mode:04o} {_user_name(info.st_uid)}")


def check_engine(here: Installation) -> Iterator[Finding]:
    """The engine answers, goes by the file that is there now, and may write what it keeps."""
    try:
        status = client.status(here.config.socket)
    except EngineDown as error:
        yield fail(str(error), "systemctl restart gputopo; journalctl -u gputopo")
        return
    goes_by = f"the engine goes by what it read at {client.config_read_at(status)}"
    if status.get("config") != str(here.config.path):
        yield warn(
            f"the engine reads {status.get('config')}, doctor {here.config.path}",
            "give both the same --config",
        )
    elif why := status.get("reload_error"):
        yield fail(f"{goes_by}: {why}", "correct it, then systemctl reload gputopo")
    elif status.get("config_digest", here.config.digest) != here.config.digest:
        yield fail(f"{here.config.path} changed since; {goes_by}", "systemctl reload gputopo")
    if (runs := status.get("version", version())) != version():
        yield warn(
            f"the engine that runs is of version {runs}, installed is {version()}",
            "systemctl restart gputopo",
        )
    for why in status.get("not_listening", ()):
        yield fail(f"the engine goes on without: {why}", "mend it, then systemctl restart gputopo")
    for folder in status.get("not_writable", ()):
        where = folder if Path(folder).is_file() else f"in {folder}"
        yield fail(
            f"the engine may not write {where}: what it is to keep there is lost",
            "give it to SlurmUser; a folder beyond the unit's own needs ReadWritePaths="
            " (systemctl edit gputopo), and a restart",
        )
    if status.get("decisions_lost"):
        yield warn(
            f"{status['decisions_lost']} decisions could not be logged",
            f"check space and owner of {here.config.decision_log.path}",
        )
    yield ok(f"answers; up {status.get('uptime_s')} s")


def check_charge(here: Installation) -> Iterator[Finding]:
    """Who is in charge is known; with a backup controller the engines share what they remember."""
    try:
        charge = _charge(here)
    except EngineDown:
        return  # check_engine reports it
    must = (
        "the engine's user must be SlurmUser, its host one of SlurmctldHost, StateSaveLocation"
        " readable there; a slurm.conf elsewhere stands as SLURM_CONF in its unit"
        " (systemctl edit gputopo: [Service], Environment=SLURM_CONF=...)"
    )
    if charge.get("is_doubtful") and not charge.get("controllers") and _began_now(here, charge):
        yield warn(
            f"not known yet: {charge['why']}", f"look again in a minute; if it stays: {must}"
        )
    elif charge.get("is_doubtful"):
        yield fail(f"the engine changes nothing in Slurm: {charge['why']}", must)
    elif charge:
        yield ok(charge["why"] + ("" if charge["is_ours"] else "; this engine stands by"))
    if len(charge.get("controllers", ())) > 1:
        yield from _shared(here)


def _charge(here: Installation) -> dict[str, Any]:
    """Who is in charge, as the engine says; just after a start it is waited for."""
    ends = time.monotonic() + PATIENCE_S
    while True:
        charge: dict[str, Any] = client.status(here.config.socket).get("charge", {})
        is_known = not charge.get("is_doubtful")
        if is_known or not _began_now(here, charge) or time.monotonic() > ends:
            return charge
        time.sleep(AGAIN_S)


def _began_now(here: Installation, charge: Mapping[str, Any]) -> bool:
    """Whether slurmctld started, or the engine or its doubts, less than SETTLED_S ago."""
    runs_s = time.time() - boot_time(here.slurm_config)
    return min(runs_s, float(charge.get("since_s", SETTLED_S))) < SETTLED_S


def _shared(here: Installation) -> Iterator[Finding]:
    """The state directory lies where slurmctld's state does, which all controllers share."""
    slurms, ours = Path(here.slurm_config.get("StateSaveLocation", "")), here.config.state_dir
    try:
        is_shared = slurms.stat().st_dev == ours.stat().st_dev
    except OSError as error:
        yield warn(f"{error.filename}: {error.strerror}", "run doctor as root or SlurmUser")
        return
    if not is_shared:
        yield warn(
            f"state_dir {ours} is not on the file system of StateSaveLocation {slurms}: after a"
            " takeover the engine may not know what the other one wrote",
            "name a folder there as state_dir, on every controller (docs/controllers.md)",
        )


def check_decision_log(here: Installation) -> Iterator[Finding]:
    """The decision log's directory exists and has room."""
    folder = here.config.decision_log.path.parent
    try:
        space = os.statvfs(folder)
    except OSError as error:
        yield fail(f"{folder}: {error.strerror}", f"make {folder} for SlurmUser")
        return
    free_mb = space.f_bavail * space.f_frsize >> 20
    wanted_mb = here.config.decision_log.max_mb
    if free_mb < wanted_mb:
        yield warn(f"{folder}: {free_mb} MB left", f"free {wanted_mb} MB or more")
    else:
        yield ok(f"{folder}: {free_mb} MB left")


def check_questions(here: Installation) -> Iterator[Finding]:
    """The engine hears of the GPU jobs that start."""
    try:
        status = client.status(here.config.socket)
    except EngineDown:
        return  # check_engine reports it
    if status.get("messages", {}).get("place") and status.get("slurm_nodes", ...) is None:
        yield warn(
            "slurmctld has not told the engine its nodes: jobs get GPUs on nodes of Slurm's choice",
            "look for `table of nodes` in slurmctld's log; it says why",
        )
    if jobs := client.unaskable(status):
        yield warn(
            f"{jobs} jobs with GPUs have started and none of them could be asked about",
            "slurmctld's log has the reason (`not asked`); what is left to Slurm: docs/select.md",
        )
    elif jobs := client.unasked(status, here.slurm, boot_time(here.slurm_config)):
        yield fail(
            f"{jobs} jobs with GPUs have started and the engine was neither asked nor told about"
            " any: slurmctld does not use our select plugin",
            "look for gputopo in slurmctld's log; restart slurmctld if PluginDir or the plugin"
            " changed since its start; rebuild the plugin from the source of this very Slurm",
        )
    else:
        yield ok(f"{status.get('messages', {}).get('place', 0)} so far")


def may_read(path: Path, uid: int) -> bool:
    """By owner and mode of the path and all above it; groups of the user that are his own only."""
    try:
        gid = pwd.getpwuid(uid).pw_gid
    except KeyError:
        gid = -1
    path = path.resolve()
    for part, bit in ((path, 4), *((folder, 1) for folder in path.parents)):
        try:
            info = part.stat()
        except OSError:
            return True  # that it is not there is said elsewhere
        shift = 6 if info.st_uid == uid else 3 if info.st_gid == gid else 0
        if not info.st_mode >> shift & bit:
            return False
    return True


def _anybody_may_write(path: Path) -> Path | None:
    """The path, or the folder above it, where every user may put another file in its place.

    Of a link both: a folder of the link's, and of the file that it names.
    """
    real = path.resolve()
    for part in (real, *real.parents, *path.parents):
        with suppress(OSError):
            mode = part.stat().st_mode
            # In a folder like /tmp a file is its owner's.
            if mode & stat.S_IWOTH and not (stat.S_ISDIR(mode) and mode & stat.S_ISVTX):
                return part
    return None


def closed_to_slurm(path: Path, values: Mapping[str, str], so: str) -> Iterator[Finding]:
    """Says that SlurmUser of these settings cannot read a file, and what comes of it (`so`)."""
    user = slurm_user(values)
    if user and not may_read(path, user):
        yield fail(
            f"{path} cannot be read by SlurmUser: {so}",
            f"chmod a+r {path}, and let others enter its folders",
        )


def slurm_user(values: Mapping[str, str]) -> int | None:
    """The uid in `SlurmUser = slurm(64030)`."""
    number = values.get("SlurmUser", "").rpartition("(")[2].rstrip(")")
    return int(number) if number.isdigit() else None


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
