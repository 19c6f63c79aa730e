"""Slurm's reasons that name a limit: `AssocGrpGRES`, `QOSMaxJobsPerUserLimit`.

A reason names neither the owner nor the number: both are looked up among the limits of the job's
user, of its account and those above it, and of its QOS and its partition's.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from slurm_plugin.queue.candidates import Need
from slurm_plugin.slurm.interface import Limit, QueuedJob
from slurm_plugin.tell.why import words
from slurm_plugin.tell.why.state import WaitingState, WaitReason

# `MaxGRESPerAccount` and `MaxCpuRunMinsPerUser` are limits of a QOS, too.
_REASON = re.compile(r"(Assoc|QOS|(?=Max\w+Per(?:Account|User)\Z))(Grp|Max|Min)(\w+)")
#: What a reason's middle is about: the part of Slurm's name of the limit, and its resource.
_KINDS = (
    ("SubmitJob", "SubmitJobs", "submitted jobs"),
    ("Jobs", "Jobs", "jobs"),
    ("Wall", "Wall", "minutes"),
    ("GRES", "TRES", "gres/"),
    ("Cpu", "TRES", "cpu"),
    ("CPU", "TRES", "cpu"),
    ("Mem", "TRES", "mem"),
    ("Node", "TRES", "node"),
    ("Billing", "TRES", "billing"),
    ("License", "TRES", "license/"),
)
#: How a reason tells whose each of a limit's numbers is, and the end of the limit's name.
_EACH = {"PerUser": "PU", "PerAccount": "PA", "PerJob": "PJ", "PerNode": "PN"}
_UNITS = {
    **{"gres/gpu": "GPU", "cpu": "CPU", "node": "node", "jobs": "job", "mem": "MB of memory"},
    **{"minutes": "minute", "submitted jobs": "submitted job"},
}


def limit_reached(state: WaitingState) -> WaitReason | None:
    """The limit behind Slurm's reason; None for a reason that names none."""
    match = _REASON.fullmatch(state.job.reason)
    if match is None:
        return None
    scope, how, what = match.groups()
    limits = _behind(state, scope, how, what)
    if limits:
        return _told(limits, state)
    whose = "its account or user" if scope == "Assoc" else f"QOS {state.job.qos or '?'}"
    text = f"waits because of a limit on {whose}, which Slurm calls {state.job.reason}"
    return WaitReason("limit", text)


def limit_in_the_way(state: WaitingState, need: Need) -> WaitReason | None:
    """A limit that the job would exceed, whatever Slurm's reason is; None where none is known."""
    limits = [one for one in _of_owners(state) if _is_exceeded(one, state.job, need)]
    return _told(limits, state) if limits else None


def limit_not_judged(state: WaitingState, need: Need, *, is_vague: bool = False) -> str:
    """A limit of the job's of which it is not known whether it would exceed it; '' for none.

    `is_vague`: the job may get more CPUs, memory or GPUs than `need` says.
    """
    for one in _of_owners(state):
        grows = is_vague and one.resource not in ("jobs", "submitted jobs", "minutes")
        if grows or _is_exceeded(one, state.job, need) is None:
            return f"{one.owner} has a limit on {one.resource} ({one.key})"
    return ""


def _of_owners(state: WaitingState) -> list[Limit]:
    owners = {**_owners(state, "Assoc"), **_owners(state, "QOS")}
    return [one for one in _by_name(state) if _owner(one) in owners]


def _is_exceeded(limit: Limit, job: QueuedJob, need: Need) -> bool | None:
    """Would the job exceed it (acct_policy.c)? None where that is not known."""
    key, used = limit.key, limit.used
    each = {"gres/gpu": need.gpus, "cpu": need.cpus, "mem": need.memory_mb, "node": 1}
    minutes = job.time_limit_s / 60 or math.inf
    amount: float | None = 0.0
    if key == "GrpWall":
        return (used or 0) >= limit.most
    if limit.resource == "minutes":
        amount = minutes if key.endswith("PJ") else 0.0
    elif limit.resource == "jobs":
        amount = 1.0
    elif limit.resource in each:
        amount = each[limit.resource] * (1 if key.endswith("PN") else need.nodes)
    elif limit.resource.startswith("gres/gpu:"):
        amount = need.gpus * need.nodes if need.types == {limit.resource.split(":", 1)[1]} else None
        amount = amount if need.gpus else 0.0
    elif limit.resource == "billing":
        amount = None
    if key.startswith("Min"):
        return None if amount is None else amount < limit.most
    if used is None and not key.endswith(("PJ", "PN")):
        return False
    if amount is None:
        return True if (used or 0) >= limit.most else None
    if "Mins" in key and amount:
        amount *= minutes
        if "RunMins" not in key and not key.endswith("PJ"):
            # Unless it is held to them (safe), a job starts while anything is left.
            is_left = (used or 0) < limit.most
            return True if not is_left else None if (used or 0) + amount > limit.most else False
    return (used or 0) + amount > limit.most


def _told(limits: list[Limit], state: WaitingState) -> WaitReason:
    facts = tuple(("limit", _in_full(one)) for one in limits)
    first = limits[0]
    most = _amount(first, first.most)
    whose = {**_owners(state, "Assoc"), **_owners(state, "QOS")}.get(_owner(first), "")
    owner = f"{first.owner}, {whose}," if whose else first.owner
    if first.key.startswith("Min"):
        text = f"asks for less than a job of {owner} has to: {most}"
    elif first.key.endswith(("PJ", "PN")):
        each = "a node of a job" if first.key.endswith("PN") else "one job"
        text = f"asks for more than {each} of {owner} may have: {most}"
    else:
        used = "" if first.used is None else f", and {_amount(first, first.used)} {_in_use(first)}"
        verb = "run" if first.resource == "jobs" else "use"
        when = "in all" if _is_of_the_past(first) else "at a time"
        text = f"waits because {owner} may {verb} {most} {when}{used}"
    return WaitReason("limit", text, facts)


def _is_of_the_past(limit: Limit) -> bool:
    """Does it count what jobs have used? The others count what jobs hold, or may still use."""
    return limit.key == "GrpWall" or ("Mins" in limit.key and "RunMins" not in limit.key)


def _by_name(state: WaitingState) -> list[Limit]:
    """The limits, each once: of what is in use the first one tells.

    22.05 tells a QOS's users by number, and the job's own one is named here.
    """
    number, name = f"user {state.job.uid} in QOS ", f"user {state.job.user} in QOS "
    named = [replace(one, owner=one.owner.replace(number, name)) for one in state.extras.limits]
    first = {(one.owner, one.key, one.resource): one for one in reversed(named)}
    return [one for one in named if first[one.owner, one.key, one.resource] is one]


def _owners(state: WaitingState, scope: str) -> dict[str, str]:
    """Whose limits of this scope count for the job.

    Each with what it has to do with the job, '' where its name says that.
    """
    job = state.job
    if scope == "Assoc":
        own, *above = state.accounts
        higher = {f"account {name}": f"which is above account {own}" for name in above}
        return {f"user {job.user} in account {own}": "", f"account {own}": "", **higher}
    owners: dict[str, str] = {}
    of_partitions = {one.qos: f"the QOS of partition {one.name}" for one in state.partitions}
    for name, whose in {**of_partitions, state.job.qos: ""}.items():
        if name:
            qos = f"QOS {name}"
            owners |= {qos: whose, f"user {job.user} in {qos}": whose}
            owners[f"account {job.account} in {qos}"] = whose
    return owners


def _owner(limit: Limit) -> str:
    return limit.owner.partition(" in partition ")[0]


def _behind(state: WaitingState, scope: str, how: str, what: str) -> list[Limit]:
    """The limits that the reason may mean and that are met, the fullest first."""
    kind = next((one for one in _KINDS if one[0] in what), None)
    if kind is None:
        return []
    _, key, resource = kind
    over = "RunMins" if "RunMin" in what else "Mins" if "Minutes" in what else ""
    each = "PJ" if how == "Min" else next((end for per, end in _EACH.items() if per in what), "")
    owners = _owners(state, scope or "QOS")
    limits = [
        one
        for one in _by_name(state)
        if one.key == f"{how}{key}{over}{each}"
        and one.resource.startswith(resource)
        and _owner(one) in owners
    ]
    return sorted(limits, key=lambda one: (-(one.used or 0) / max(one.most, 1), one.owner))


def _amount(limit: Limit, count: int) -> str:
    unit = _UNITS.get(limit.resource, limit.resource)
    if "Mins" in limit.key:
        unit = f"{unit} minute"
    is_counted = limit.resource in _UNITS and not unit.endswith("memory")
    return f"{count} {unit}{'s' if is_counted and count != 1 else ''}"


def _in_use(limit: Limit) -> str:
    if limit.resource == "jobs":
        return "runs" if limit.used == 1 else "run"
    if _is_of_the_past(limit):
        return "was used" if limit.used == 1 else "were used"
    return f"{words.is_are(limit.used or 0)} in use"


def _in_full(limit: Limit) -> str:
    used = "" if limit.used is None else f", in use {limit.used}"
    return f"{limit.owner}: {limit.key} {limit.resource}={limit.most}{used}"
