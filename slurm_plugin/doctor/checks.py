"""The checks, each a small function over one installation; `CHECKS` is their order."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

from slurm_plugin import client
from slurm_plugin.config import settings as config
from slurm_plugin.config.settings import Config
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.decide.machines import Machines
from slurm_plugin.doctor import genie, slots, slurm_files
from slurm_plugin.doctor.finding import Finding, fail, ok, warn
from slurm_plugin.errors import EngineDown, PluginError
from slurm_plugin.slurm import SlurmClient, SlurmNode


class Installation:
    """What the checks look at, read once. Each attribute raises PluginError if it cannot be."""

    def __init__(self, path: Path, make_client: Callable[[Config | None], SlurmClient]) -> None:
        self.path = path
        self._make_client = make_client

    @cached_property
    def config(self) -> Config:
        """gputopo.yaml."""
        return config.load(self.path)

    @cached_property
    def machines(self) -> Machines:
        """The declared nodes' hardware."""
        return load_machines(self.config)

    @cached_property
    def slurm(self) -> SlurmClient:
        """Slurm, reached as the configuration says (or by PATH without one)."""
        try:
            settings = self.config
        except PluginError:
            settings = None
        return self._make_client(settings)

    @cached_property
    def slurm_config(self) -> dict[str, str]:
        """`scontrol show config`."""
        return dict(self.slurm.config())

    @cached_property
    def nodes(self) -> list[SlurmNode]:
        """Slurm's nodes."""
        return self.slurm.nodes()


def examine(installation: Installation) -> Iterator[Finding]:
    """Every check's findings; a check that cannot be made says so once."""
    told: set[str] = set()
    for name, check in CHECKS.items():
        try:
            yield from check(installation)
        except PluginError as error:
            text = " ".join(str(error).split())
            if text not in told:
                told.add(text)
                yield fail(name, text, "fix this first; what depends on it was not checked")


def check_config(here: Installation) -> Iterator[Finding]:
    """gputopo.yaml is valid and its topologies are found."""
    settings = here.config
    yield ok("config", f"{settings.path}: {len(here.machines)} nodes declared")
    modes = {rule.mode for rule in settings.partitions.values()}
    if modes == {"off"}:
        yield warn("config", "every partition is off", "set mode: observe or enforce in partitions")


def check_kill_switch(here: Installation) -> Iterator[Finding]:
    """The file that switches everything off is absent."""
    switch = here.config.kill_switch
    if switch.exists():
        yield fail("kill switch", f"{switch} exists: everything is passed", f"rm {switch}")
    else:
        yield ok("kill switch", f"{switch} is absent")


def check_socket(here: Installation) -> Iterator[Finding]:
    """The socket exists, is one, and only SlurmUser and its group may use it."""
    path = here.config.socket
    try:
        info = path.lstat()
    except FileNotFoundError:
        yield fail("socket", f"{path} is missing", "systemctl start gputopo")
        return
    except PermissionError:
        yield fail("socket", f"{path} cannot be seen", "run doctor as root or SlurmUser")
        return
    if not stat.S_ISSOCK(info.st_mode):
        yield fail("socket", f"{path} is not a socket", "move the file away, restart gputopo")
        return
    mode = stat.S_IMODE(info.st_mode)
    if mode & 0o007:
        yield fail("socket", f"{path} has mode {mode:04o}", f"chmod 0660 {path}")
    wanted = _slurm_user(here.slurm_config)
    if wanted is not None and info.st_uid != wanted:
        yield fail(
            "socket",
            f"{path} belongs to {_user_name(info.st_uid)}, SlurmUser is {_user_name(wanted)}",
            "set User= and Group= of gputopo.service to SlurmUser, restart gputopo",
        )
    elif not mode & 0o007:
        yield ok("socket", f"{path} {mode:04o} {_user_name(info.st_uid)}")


def check_engine(here: Installation) -> Iterator[Finding]:
    """The engine answers, and reads the same configuration."""
    try:
        told = client.status(here.config.socket)
    except EngineDown as error:
        yield fail("engine", str(error), "systemctl start gputopo; journalctl -u gputopo")
        return
    if told.get("config") != str(here.config.path):
        yield warn(
            "engine",
            f"the engine reads {told.get('config')}, doctor {here.config.path}",
            "give both the same --config",
        )
    if told.get("decisions_lost"):
        yield warn(
            "engine",
            f"{told['decisions_lost']} decisions could not be logged",
            f"check space and owner of {here.config.decision_log.path}",
        )
    yield ok("engine", f"answers; up {told.get('uptime_s')} s")


def check_nodes(here: Installation) -> Iterator[Finding]:
    """Declared nodes are Slurm's nodes, with as many GPUs; the rest is named."""
    slurm = {node.name: node for node in here.nodes}
    for name, machine in here.machines.items():
        node = slurm.get(name)
        if node is None:
            yield warn("nodes", f"{name} is declared, Slurm does not know it", "fix nodes:")
        elif machine.problem:
            yield fail("nodes", f"{name} is left to Slurm: {machine.problem}", _FIX_NODE)
        elif machine.topology is not None and machine.topology.gpus != node.gpu_count:
            yield fail(
                "nodes",
                f"{name}: Slurm has {node.gpu_count} GPUs, its topology {machine.topology.name}"
                f" {machine.topology.gpus}",
                "correct topology: in gputopo.yaml or Gres= in slurm.conf",
            )
        else:
            yield ok("nodes", f"{name}: {node.gpu_count} GPUs")
    for name, node in slurm.items():
        if node.gpu_count and name not in here.machines:
            yield warn(
                "nodes",
                f"{name} has {node.gpu_count} GPUs and is not declared: left to Slurm",
                "declare it under nodes: in gputopo.yaml",
            )


_FIX_NODE = (
    "if the hardware was changed on purpose: correct topology: or run"
    " `gputopo topology collect --accept NODE`; else repair the node"
)


def check_partitions(here: Installation) -> Iterator[Finding]:
    """Partitions the configuration names exist."""
    known = {partition.name for partition in here.slurm.partitions()}
    for name, rule in here.config.partitions.items():
        if name == "default":
            continue
        if name in known:
            yield ok("partitions", f"{name}: {rule.mode}")
        else:
            yield warn("partitions", f"{name} is no partition of Slurm", "fix partitions:")


def _slurm_user(values: dict[str, str]) -> int | None:
    """The uid in `SlurmUser = slurm(64030)`."""
    number = values.get("SlurmUser", "").rpartition("(")[2].rstrip(")")
    return int(number) if number.isdigit() else None


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def check_decision_log(here: Installation) -> Iterator[Finding]:
    """The decision log's directory exists and has room."""
    folder = here.config.decision_log.path.parent
    try:
        space = os.statvfs(folder)
    except OSError as error:
        yield fail("decision log", f"{folder}: {error.strerror}", f"make {folder} for SlurmUser")
        return
    free_mb = space.f_bavail * space.f_frsize >> 20
    wanted_mb = here.config.decision_log.max_mb
    if free_mb < wanted_mb:
        yield warn("decision log", f"{folder}: {free_mb} MB left", f"free {wanted_mb} MB or more")
    else:
        yield ok("decision log", f"{folder}: {free_mb} MB left")


def check_slurm(here: Installation) -> Iterator[Finding]:
    """slurmctld answers."""
    yield ok("slurm", f"slurmctld {here.slurm.version()} answers")


def check_bridge(here: Installation) -> Iterator[Finding]:
    """The Lua bridge is loaded."""
    return slurm_files.bridge(here.slurm_config)


def check_plugin(here: Installation) -> Iterator[Finding]:
    """The select plugin is found before Slurm's own and fits its release."""
    enforcement: str
    try:
        enforcement = here.config.enforcement
    except PluginError:
        enforcement = slots.bridge_enforcement(here.slurm_config)
    if enforcement == "select":
        yield from slurm_files.plugin(here.slurm_config)


def check_questions(here: Installation) -> Iterator[Finding]:
    """The engine hears of the GPU jobs that start."""
    try:
        told = client.status(here.config.socket)
    except EngineDown:
        return  # said already
    if jobs := client.unasked(told, here.slurm):
        yield fail(
            "questions",
            f"{jobs} jobs with GPUs have started and the engine was neither asked nor told about"
            " any: slurmctld does not use our select plugin",
            "look for gputopo in slurmctld's log; restart slurmctld if PluginDir or the plugin"
            " changed since its start; rebuild the plugin from the source of this very Slurm",
        )
    else:
        yield ok("questions", f"{told.get('messages', {}).get('place', 0)} so far")


def check_enforcement(here: Installation) -> Iterator[Finding]:
    """Bridge and engine enforce the same way; what `enforcement: slots` needs is there."""
    enforcement = here.config.enforcement
    yield from slots.bridge_half(here.slurm_config, enforcement)
    if enforcement == "slots":
        yield from slots.settings(here.slurm_config)
        yield from slots.gres_types(here.nodes, here.machines)
    if here.config.remote.allow:
        yield from slots.lending(here.slurm_config, here.config.remote)


def check_genie(here: Installation) -> Iterator[Finding]:
    """The partitions whose jobs are shaped are Slurm's, and the models are there."""
    settings = here.config.genie
    if settings is None:
        yield ok("genie", "no jobs are shaped")
    else:
        yield from genie.findings(settings, here.slurm.partitions(), here.slurm_config)


CHECKS: dict[str, Callable[[Installation], Iterator[Finding]]] = {
    "config": check_config,
    "kill switch": check_kill_switch,
    "slurm": check_slurm,
    "socket": check_socket,
    "engine": check_engine,
    "decision log": check_decision_log,
    "bridge": check_bridge,
    "select plugin": check_plugin,
    "questions": check_questions,
    "enforcement": check_enforcement,
    "partitions": check_partitions,
    "nodes": check_nodes,
    "genie": check_genie,
}
