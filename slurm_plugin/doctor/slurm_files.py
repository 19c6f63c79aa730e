"""Checks of what slurmctld loads: the Lua bridge and the select plugin."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gres_topology import plain_file
from slurm_plugin.base import client
from slurm_plugin.doctor import engine, slurms_lua
from slurm_plugin.doctor.finding import Finding, fail, ok, warn
from slurm_plugin.doctor.installation import Installation
from slurm_plugin.errors import PluginError
from slurm_plugin.slurm import slurm_conf
from slurm_plugin.slurm.releases import parse_version
from slurm_plugin.slurm.runner import boot_time, controllers, short

PLUGIN_FILE = "select_cons_tres.so"
SELECT_CONF = "gputopo-select.conf"
#: Its keys, as slurm_plugin/select/pure/settings.c has them.
SELECT_KEYS = frozenset(
    (
        *("socket", "kill_switch", "deadline_ms", "breaker_s", "pass_budget_ms", "pass_window_s"),
        *("max_postponements", "max_wait_s", "max_candidates", "stats_every_starts"),
        *("stats_interval_s", "respect_weight", "other_nodes"),
    )
)
#: Where the package slurm-gputopo-select puts the plugin, and where one's own build goes.
PLUGIN_DIRS = (Path("/usr/lib/slurm-gputopo/slurm"), Path("/usr/local/lib"))
PROC = Path("/proc")
_ENABLE = "gputopo enable --apply, then restart slurmctld"
_GET_PLUGIN = "install the package slurm-gputopo-select, or build the plugin (docs/select.md)"
#: Present in our plugin's file and in no plugin of Slurm's; in a script that loads ours.
_OURS = b"gputopo"
#: Stands in its file before the number of the Slurm that it is built for, a uint32.
_BUILT_FOR = b"gputopo-version\0"
#: A comment of Lua: up to `]]`, or to the line's end.
_LUA_COMMENT = re.compile(rb"--\[(=*)\[[\s\S]*?\]\1\]|--.*")
#: Stands in the job_submit.lua that we ship, and in no other.
_OWN_SCRIPT = b"slurm-gputopo: the script slurmctld loads"


def check_conf(here: Installation) -> Iterator[Finding]:
    """slurm.conf still says what slurmctld runs with, where that decides whether ours is called."""
    path = here.slurm_conf
    hosts = [short(host) for host in controllers(here.slurm_config).values()]
    if hosts and short(platform.node()) not in hosts:
        yield ok(f"{path} is not compared: slurmctld runs on {', '.join(hosts)}")
        return
    try:
        conf = slurm_conf.parse(path)
    except PluginError as error:
        yield warn(
            f"{error}; whether slurmctld will start with ours again is not known",
            "run doctor on slurmctld's host, as root; if it is run there, mend slurm.conf",
        )
        return
    is_same = True
    for key in (slurm_conf.PLUGIN_DIR, slurm_conf.JOB_SUBMIT):
        running, setting = here.slurm_config.get(key, ""), conf.last(key)
        said = setting.value if setting else ""
        # What PluginDir is without a line nobody says; that it is not ours is certain.
        is_ours = any(is_in(Path(part)) for part in running.split(":") if part)
        if said == running or (setting is None and key == slurm_conf.PLUGIN_DIR and not is_ours):
            continue
        is_same = False
        where = f"{setting.where} says {key}={said}" if setting else f"{path} has no {key}"
        yield warn(
            f"{where}, and slurmctld runs with {running or 'none'}: changed since it started",
            "restart slurmctld, which takes the change, or take the change back",
        )
    if is_same:
        yield ok(f"{path} says what slurmctld runs with")


def check_bridge(here: Installation) -> Iterator[Finding]:
    """job_submit.lua: listed, present beside slurm.conf, and ours."""
    plugins = [name.strip() for name in here.slurm_config.get("JobSubmitPlugins", "").split(",")]
    names = [name.removeprefix("job_submit/") for name in plugins]
    script = here.beside_slurm_conf("job_submit.lua")
    if "lua" not in names:
        yield fail("JobSubmitPlugins does not name lua", _ENABLE)
        return
    try:
        is_ours = loads_ours(script)
    except OSError as error:
        yield fail(f"{script}: {error.strerror}", "gputopo enable --apply links ours there")
        return
    if not is_ours:
        what_to_do = "call the bridge from it (docs/lua-bridge.md)"
        yield fail(f"{script} is not ours and does not load ours", what_to_do)
        return
    if findings := list(check_script(here, script)):
        yield from findings
        return
    try:
        yield _heard(here, script)
    except PluginError:  # the engine does not answer, or nobody knows where: others report it
        yield ok(f"{script} is to load ours; whether it does a running engine tells")


def check_script(here: Installation, script: Path) -> Iterator[Finding]:
    """What keeps slurmctld from starting with this job_submit.lua; nothing where it starts."""
    so = "slurmctld does not start with it"
    folders = [Path(part) for part in here.slurm_config.get("PluginDir", "").split(":") if part]
    if closed := list(engine.closed_to_slurm(script, here.slurm_config, so)):
        yield from closed
    elif why := slurms_lua.mistake_in(script, folders):
        yield fail(
            f"slurmctld does not start with this script: {why}", "correct it before its next start"
        )


def _heard(here: Installation, script: Path) -> Finding:
    """Whether submits come to the engine: a script of the site's may name ours and load nothing."""
    status = client.status(here.config.socket)
    why = (
        "slurmctld's log says why: another job_submit plugin that fails first, or a script that"
        " does not find gputopo/bridge.lua (docs/lua-bridge.md)"
    )
    if submits := status.get("messages", {}).get("submit"):
        return ok(f"{script} is loaded: {submits} submits came to the engine")
    if jobs := client.unheard(status, here.slurm, boot_time(here.slurm_config)):
        return warn(f"{jobs} jobs with GPUs were submitted, and none came to the engine", why)
    if _OWN_SCRIPT in plain_file.read_bytes(script):
        return ok(f"{script} is loaded")
    return warn(
        f"{script} names ours, and no submit has come to the engine yet",
        f"submit a job that asks for GPUs, and look again; if nothing comes, {why}",
    )


def loads_ours(script: Path) -> bool:
    """Whether a job_submit.lua is ours or calls our bridge; OSError where it cannot be read."""
    return _OURS in _LUA_COMMENT.sub(b"", plain_file.read_bytes(script))


def select_settings(here: Installation) -> Iterator[Finding]:
    """gputopo-select.conf, where there is one: with a wrong one the plugin asks nobody."""
    path = here.beside_slurm_conf(SELECT_CONF)
    lost = "every job keeps Slurm's own GPUs from slurmctld's next start on"
    if not path.exists():
        return
    if closed := list(engine.closed_to_slurm(path, here.slurm_config, lost)):
        yield from closed
        return
    socket, text = "", plain_file.read_bytes(path).decode(errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        key, equals, value = (part.strip() for part in line.strip().partition("="))
        if not (key or equals) or key.startswith("#"):
            continue
        if not equals or key not in SELECT_KEYS:
            yield fail(
                f"{path}:{number}: {key[:60]!r}: {lost}",
                f"key=value with one of {', '.join(sorted(SELECT_KEYS))} (docs/select.md)",
            )
        socket = value if key == "socket" else socket
    if socket and Path(socket) != here.config.socket:
        yield fail(
            f"{path} says socket={socket}, gputopo.yaml {here.config.socket}: {lost}",
            "say the same in both, restart slurmctld and gputopo",
        )


def plugin(slurm_config: Mapping[str, str]) -> Iterator[Finding]:
    """select_cons_tres.so: ours comes first in PluginDir and has slurmctld's version."""
    if slurm_config.get("SelectType") != "select/cons_tres":
        yield fail(
            f"SelectType is {slurm_config.get('SelectType')}",
            "SelectType=select/cons_tres in slurm.conf",
        )
        return
    folders = [Path(part) for part in slurm_config.get("PluginDir", "").split(":") if part]
    for folder in folders:
        if not folder.is_dir():
            yield fail(
                f"{folder} of PluginDir does not exist here: daemons that restart will not start",
                f"mkdir {folder} on every host that reads slurm.conf, or drop it from PluginDir",
            )
    files = [folder / PLUGIN_FILE for folder in folders if (folder / PLUGIN_FILE).is_file()]
    ours = [path for path in files if is_in(path.parent)]
    if not ours:
        yield fail(
            f"no {PLUGIN_FILE} of ours in PluginDir {slurm_config.get('PluginDir')}",
            _ENABLE if any(map(is_in, PLUGIN_DIRS)) else f"{_GET_PLUGIN}; then {_ENABLE}",
        )
    elif files[0] != ours[0]:
        yield fail(
            f"{files[0]} is found before {ours[0]}", f"put {ours[0].parent} first in PluginDir"
        )
    elif len(files) == len(ours):
        yield fail(
            f"only {' and '.join(map(str, ours))} is found: it needs Slurm's own behind it",
            "append Slurm's plugin directory to PluginDir",
        )
    else:
        so = "slurmctld loads Slurm's own, until it is restarted with this mended"
        if closed := list(engine.closed_to_slurm(ours[0], slurm_config, so)):
            yield from closed
            return
        if runs_the_former(ours[0], engine.slurm_user(slurm_config)):
            yield warn(
                f"{ours[0]} was put there after slurmctld started, which runs the former one",
                "systemctl restart slurmctld",
            )
        yield _fits(ours[0], slurm_config.get("SLURM_VERSION", ""))


def runs_the_former(path: Path, user: int | None) -> bool:
    """Whether a slurmctld here has loaded a file that lay at this path and was replaced since.

    Its dates do not tell: a package keeps older ones, and a chmod makes a new one. Nothing is said
    where doctor may not look into slurmctld, as no other user than root and SlurmUser may; programs
    of others may have any name.
    """
    gone = b" " + os.fsencode(path.resolve()) + b" (deleted)\n"
    for program in PROC.glob("[0-9]*/comm"):
        with suppress(OSError):
            is_slurms = (
                program.stat().st_uid in (0, user) and program.read_bytes() == b"slurmctld\n"
            )
            if is_slurms and gone in program.with_name("maps").read_bytes():
                return True
    return False


def is_in(folder: Path) -> bool:
    """Whether our select plugin lies in this directory."""
    with suppress(OSError):
        return _OURS in plain_file.read_bytes(folder / PLUGIN_FILE)
    return False


def _fits(path: Path, version: str) -> Finding:
    _, mark, behind = plain_file.read_bytes(path).partition(_BUILT_FOR)
    if not mark:
        return fail(f"{path} does not say for which Slurm it is built", _GET_PLUGIN)
    number = int.from_bytes(behind[:4], sys.byteorder)
    built = f"{number >> 16 & 0xFF}.{number >> 8 & 0xFF:02d}.{number & 0xFF}"
    parse_version(version)
    if built != version.split("-")[0]:
        # slurmctld skips such a file: jobs run, but nobody asks us.
        return fail(
            f"{path} is built for {built}, slurmctld is {version}: it is not loaded",
            f"{_GET_PLUGIN}, for Slurm {version}",
        )
    return ok(f"{path} for {built} comes first")
