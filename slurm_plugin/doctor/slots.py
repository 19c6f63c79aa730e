"""Checks of `enforcement: slots`: GRES types, the bridge's half, and Slurm's settings."""

from __future__ import annotations

from collections.abc import Iterator

from gres_topology import plain_file
from slurm_plugin.act.lending.acting.question import Submitter
from slurm_plugin.doctor.finding import Finding, fail, ok, warn
from slurm_plugin.doctor.installation import Installation
from slurm_plugin.slurm.slot_types import slots_of

_BRIDGE_CONF = "gputopo-bridge.conf"
_GUIDE = "see docs/slots.md"
#: What the process that submits donors has for its answer.
ASKED_S = 5.0


def check_bridge_half(here: Installation) -> Iterator[Finding]:
    """gputopo-bridge.conf and gputopo.yaml name the same way of enforcing."""
    enforcement, stated = here.config.enforcement, bridge_enforcement(here)
    if stated != enforcement:
        yield fail(
            f"{here.beside_slurm_conf(_BRIDGE_CONF)} says enforcement = {stated},"
            f" gputopo.yaml {enforcement}",
            "set both to the same, restart slurmctld and gputopo",
        )
    else:
        yield ok(f"{enforcement}, in the bridge and in the engine")


def bridge_enforcement(here: Installation) -> str:
    """What the bridge was told: `select` where its file says nothing."""
    try:
        data = plain_file.read_bytes(here.beside_slurm_conf(_BRIDGE_CONF))
    except OSError:
        return "select"
    lines = data.decode(errors="replace").splitlines()
    pairs = (line.split("#")[0].partition("=") for line in lines)
    values = [value.strip() for key, _, value in pairs if key.strip() == "enforcement"]
    return values[-1] if values else "select"


def check_slots(here: Installation) -> Iterator[Finding]:
    """What `enforcement: slots` needs of slurm.conf, and a GRES type for each GPU."""
    if here.config.enforcement != "slots":
        return
    if "ACCRUE_ALWAYS" not in here.slurm_config.get("PriorityFlags", ""):
        problem = "jobs behind the gate grow no older: PriorityFlags lacks ACCRUE_ALWAYS"
        unless = "unless limits on how many jobs age (MaxJobsAccrue) are to hold"
        yield warn(problem, f"PriorityFlags=ACCRUE_ALWAYS, {unless}; {_GUIDE}")
    # Slurm numbers them, even one alone: `EpilogSlurmctld[0]`.
    if not any(here.slurm_config.get(key) for key in ("EpilogSlurmctld", "EpilogSlurmctld[0]")):
        problem = "the engine is not told when jobs end: EpilogSlurmctld is not set"
        yield warn(problem, f"EpilogSlurmctld=.../lua_bridge/epilog-slurmctld; {_GUIDE}")
    parameters = here.slurm_config.get("SchedulerParameters", "")
    for word in ("batch_sched_delay=0", "sched_min_interval=0"):
        if word not in parameters:
            problem = f"released jobs start seconds late: SchedulerParameters lacks {word}"
            yield warn(problem, f"add {word} to SchedulerParameters")
    for node in here.nodes:
        if node.name not in here.machines or not node.gpu_count:
            continue
        slots = slots_of(node.gpus)
        if slots:
            yield ok(f"{node.name}: {slots[0]} to {slots[-1]}")
        else:
            types = ", ".join(f"{kind or 'no type'}:{count}" for kind, count in node.gpus.items())
            yield fail(
                f"{node.name}: its GPUs are {types}, not one GRES type each",
                "gputopo topology gres-conf --slots writes gres.conf and the node line",
            )


def check_remote(here: Installation) -> Iterator[Finding]:
    """What jobs need in order to meet their donors, and who submits these."""
    remote = here.config.remote
    if not remote.allow:
        return
    if here.slurm_config.get("TaskProlog", "(null)") in ("", "(null)"):
        problem = "nothing is lent: TaskProlog is not set, so no job could meet its donors"
        yield fail(problem, "TaskProlog=.../task-prolog; see docs/remote-setup.md")
    else:
        yield ok(f"GPUs are lent by {remote.preset.name}")
    why = Submitter(remote.submitter, ASKED_S).obstacle()
    if why:
        fix = "systemctl enable --now gputopo-donors; see docs/remote-setup.md"
        yield fail(f"nothing is lent: {why}", fix)
    else:
        yield ok(f"{remote.submitter} submits donors")
