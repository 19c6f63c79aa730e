"""What must hold before slurm.conf is changed: doctor's checks, on what it would say then."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from gres_topology.slurm_files.conf_lines import lines
from slurm_plugin.doctor import slots, slurm_files, slurms_lua
from slurm_plugin.doctor.engine import may_read, slurm_user
from slurm_plugin.doctor.finding import Finding, fail, ok, warn
from slurm_plugin.doctor.installation import Installation
from slurm_plugin.doctor.slurm_files import PLUGIN_DIRS
from slurm_plugin.enabling.edits import entries, names_lua
from slurm_plugin.errors import PluginError
from slurm_plugin.slurm.slurm_conf import JOB_SUBMIT, PLUGIN_DIR, SlurmConf

SCRIPT = "job_submit.lua"
#: A program of ours that a site calls by a line of its own (Epilog, TaskProlog and the like).
_OUR_PROGRAM = re.compile(
    r"\s*(\w+)\s*=.*?(/[\w./+@%~-]*/(?:slurm-gputopo|lua_bridge|slurm_plugin)/[\w./-]+)"
)
#: What may stand in a value of slurm.conf without quotes, and is no part of its grammar.
_PLAIN = re.compile(r"/[\w./+@%~-]*")


@dataclass(frozen=True, slots=True)
class EnablingPlan:
    """What enabling is to bring about."""

    slurm_conf: Path
    #: The select plugin's directory; None with enforcement: slots.
    plugin_dir: Path | None
    #: Slurm's own PluginDir, where slurm.conf names none.
    slurms_own: str
    #: job_submit.lua of this installation.
    script: Path

    @property
    def link(self) -> Path:
        """Where slurmctld looks for job_submit.lua."""
        return self.slurm_conf.with_name(SCRIPT)


def own_script() -> Path:
    """job_submit.lua beside the installed package lua_bridge; PluginError where it is not."""
    package = find_spec("lua_bridge")
    folders = package.submodule_search_locations if package else None
    script = Path(*list(folders or ["/nowhere"])[:1]) / SCRIPT
    if not script.is_file():
        raise PluginError(f"{script}: not there: install slurm-gputopo again")
    return script.absolute()


def setup(here: Installation, plugin_dir: Path | None) -> EnablingPlan:
    """What is to be done on this site; PluginError where it cannot be told."""
    running = here.slurm_config
    folder = None
    if here.config.enforcement == "select":
        folder = plugin_dir or next(filter(slurm_files.is_in, PLUGIN_DIRS), PLUGIN_DIRS[0])
        if not _PLAIN.fullmatch(str(folder)):
            raise PluginError(
                f"--plugin-dir {str(folder)!r}: expected an absolute path of letters, digits and"
                " . _ - + @ % ~"
            )
    # A slurmctld that still runs with our directory, from an earlier call, is no reason to keep it.
    parts = running.get("PluginDir", "").split(":")
    own = [part for part in parts if part and not _is_for_us(Path(part), folder)]
    if folder and not (own and all(map(_PLAIN.fullmatch, own))):
        raise PluginError(
            f"PluginDir of slurmctld is {running.get('PluginDir')!r}: expected Slurm's own"
            " directory in it, as plain paths"
        )
    return EnablingPlan(here.slurm_conf, folder, ":".join(own), own_script())


def _is_for_us(folder: Path, chosen: Path | None) -> bool:
    if slurm_files.is_in(folder):
        return True
    return folder in (chosen, *PLUGIN_DIRS) and not (folder / slurm_files.PLUGIN_FILE).exists()


def findings(here: Installation, plan: EnablingPlan, plugin_dir: str) -> Iterator[Finding]:
    """Whether slurmctld would work with this PluginDir and our script; with the check's name."""
    folders = [Path(part) for part in plugin_dir.split(":") if part]
    then = {**here.slurm_config, "PluginDir": plugin_dir}
    checks = {
        "config": _config(here),
        "bridge": _bridge(here, plan),
        "LuaSocket": _lua_socket(folders),
        "enforcement": slots.check_bridge_half(here),
        # They look at the slurm.conf that slurmctld runs with; the next one may have the types.
        "slots": (
            replace(finding, level="warn") for finding in slots.check_slots(here) if finding.fix
        ),
    }
    if plan.plugin_dir is not None:
        checks["select plugin"] = chain(slurm_files.plugin(then), slurm_files.select_settings(here))
    for name, check in checks.items():
        for finding in check:
            yield replace(finding, check=name)


def _config(here: Installation) -> Iterator[Finding]:
    machines = here.machines
    yield ok(f"{here.config.path}: {len(machines)} nodes declared")
    if not machines:
        yield warn("no node is declared: all are left to Slurm", "name them under nodes:")


def _bridge(here: Installation, plan: EnablingPlan) -> Iterator[Finding]:
    user = slurm_user(here.slurm_config)
    for path in filter(None, (plan.script, plan.plugin_dir)):
        if user and not may_read(path, user):
            yield fail(f"{path} cannot be read by SlurmUser", "install it where all may read")
    if is_our_link(plan.link, plan.script):
        yield ok(f"{plan.link} is linked")
    elif not os.path.lexists(plan.link):
        yield ok(f"{plan.link} is to be linked")
    elif _loads_ours(plan.link):
        yield from slurm_files.check_script(here, plan.link)
        yield ok(f"{plan.link} loads ours")
    else:
        yield fail(
            f"{plan.link} is there and does not load ours",
            "call the bridge from it (docs/lua-bridge.md), or move it away",
        )


def _loads_ours(script: Path) -> bool:
    with suppress(OSError):
        return script.is_file() and slurm_files.loads_ours(script)
    return False


def _lua_socket(folders: list[Path]) -> Iterator[Finding]:
    why = slurms_lua.obstacle(folders)
    if why is None:
        yield ok("the Lua of slurmctld finds it")
    else:
        fix = "install LuaSocket for that Lua (Debian: lua-socket), and Slurm's Lua plugin"
        yield fail(f"the bridge would not work: {why}", fix)


def left_behind(conf: SlurmConf, has_link: bool) -> Iterator[Finding]:
    """What of ours a slurm.conf names, or stands beside it, that enabling did not put there."""
    folders = conf.last(PLUGIN_DIR)
    for path, text in conf.texts.items():
        for line in lines(text):
            match = _OUR_PROGRAM.match(line.joined)
            if match and match[1].lower() != "plugindir":
                problem = f"{path}, line {line.number}: {match[1]} names {match[2]}"
                fix = "take it out by hand before the packages go: without that file Slurm does not"
                yield replace(warn(problem, f"{fix} start, or jobs fail"), check=match[1])
    for entry in entries(folders):
        if folders and slurm_files.is_in(Path(entry)):
            problem = f"{folders.where} names {entry}, where our select plugin is"
            yield replace(warn(problem, f"take {entry} out by hand"), check="PluginDir")
    plugins = conf.last(JOB_SUBMIT)
    if has_link and plugins and names_lua(conf):
        problem = f"{plugins.where} names lua, so {SCRIPT} stays linked"
        yield replace(warn(problem, "take lua out by hand, and run this again"), check=JOB_SUBMIT)
    script, copy = conf.path.with_name(SCRIPT), conf.path.with_name("gputopo")
    if not has_link and _loads_ours(script):
        fix = "take its lines for gputopo out by hand"
        yield replace(warn(f"{script} loads ours", fix), check="bridge")
    if (copy / "bridge.lua").is_file():
        problem = f"{copy} is a copy of our Lua modules"
        yield replace(warn(problem, f"once no script loads it: rm -r {copy}"), check="bridge")


def is_our_link(link: Path, script: Path) -> bool:
    """Whether a job_submit.lua is a link to that of this installation."""
    with suppress(OSError):
        return link.is_symlink() and link.samefile(script)
    return False
