"""Checks of `enforcement: slots`: GRES types, the bridge's half, and Slurm's settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.doctor.finding import Finding, fail, ok, warn
from slurm_plugin.lending.acting.question import Submitter
from slurm_plugin.slurm.interface import SlurmNode
from slurm_plugin.slurm.slot_types import slots_of

_GUIDE = "see docs/slots.md"
#: What the process that submits donors has for its answer.
ASKED_S = 5.0


def bridge_half(slurm_config: Mapping[str, str], enforcement: str) -> Iterator[Finding]:
    """gputopo-bridge.conf and gputopo.yaml name the same way of enforcing."""
    stated = bridge_enforcement(slurm_config)
    if stated != enforcement:
        yield fail(
            "enforcement",
            f"{_bridge_conf(slurm_config)} says enforcement = {stated}, gputopo.yaml {enforcement}",
            "set both to the same, restart slurmctld and gputopo",
        )
    else:
        yield ok("enforcement", f"{enforcement}, in the bridge and in the engine")


def bridge_enforcement(slurm_config: Mapping[str, str]) -> str:
    """What the bridge was told: `select` where its file says nothing."""
    try:
        lines = _bridge_conf(slurm_config).read_text(errors="replace").splitlines()
    except OSError:
        return "select"
    pairs = (line.split("#")[0].partition("=") for line in lines)
    found = [value.strip() for key, _, value in pairs if key.strip() == "enforcement"]
    return found[-1] if found else "select"


def _bridge_conf(slurm_config: Mapping[str, str]) -> Path:
    conf = Path(slurm_config.get("SLURM_CONF", "/etc/slurm/slurm.conf"))
    return conf.with_name("gputopo-bridge.conf")


def settings(slurm_config: Mapping[str, str]) -> Iterator[Finding]:
    """What slurm.conf should say besides."""
    if "ACCRUE_ALWAYS" not in slurm_config.get("PriorityFlags", ""):
        problem = "jobs behind the gate grow no older: PriorityFlags lacks ACCRUE_ALWAYS"
        yield warn("slots", problem, f"PriorityFlags=ACCRUE_ALWAYS; {_GUIDE}")
    if slurm_config.get("EpilogSlurmctld", "(null)") in ("", "(null)"):
        problem = "the engine is not told when jobs end: EpilogSlurmctld is not set"
        yield warn("slots", problem, f"EpilogSlurmctld=.../lua_bridge/epilog-slurmctld; {_GUIDE}")
    parameters = slurm_config.get("SchedulerParameters", "")
    for word in ("batch_sched_delay=0", "sched_min_interval=0"):
        if word not in parameters:
            problem = f"released jobs start seconds late: SchedulerParameters lacks {word}"
            yield warn("slots", problem, f"add {word} to SchedulerParameters")


def lending(slurm_config: Mapping[str, str], remote: RemoteConfig) -> Iterator[Finding]:
    """What jobs need in order to meet their donors, and who submits these."""
    if slurm_config.get("TaskProlog", "(null)") in ("", "(null)"):
        problem = "nothing is lent: TaskProlog is not set, so no job could meet its donors"
        yield fail("remote", problem, "TaskProlog=.../task-prolog; see docs/remote-setup.md")
    else:
        yield ok("remote", f"GPUs are lent by {remote.preset.name}")
    why = Submitter(remote.submitter, ASKED_S).obstacle()
    if why:
        fix = "systemctl enable --now gputopo-donors; see docs/remote-setup.md"
        yield fail("remote", f"nothing is lent: {why}", fix)
    else:
        yield ok("remote", f"{remote.submitter} submits donors")


def gres_types(nodes: Iterable[SlurmNode], declared: Iterable[str]) -> Iterator[Finding]:
    """Every GPU of the declared nodes is a GRES type of its own."""
    names = set(declared)
    for node in nodes:
        if node.name not in names or not node.gpu_count:
            continue
        slots = slots_of(node.gpus)
        if slots:
            yield ok("slots", f"{node.name}: {slots[0]} to {slots[-1]}")
        else:
            types = ", ".join(f"{kind or 'no type'}:{count}" for kind, count in node.gpus.items())
            yield fail(
                "slots",
                f"{node.name}: its GPUs are {types}, not one GRES type each",
                "gputopo topology gres-conf --slots writes gres.conf and the node line",
            )
