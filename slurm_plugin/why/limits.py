"""Slurm's reasons that name a limit: `AssocGrpGRES`, `QOSMaxJobsPerUserLimit`."""

from __future__ import annotations

import re
from dataclasses import replace

from slurm_plugin.queue.candidates import Need
from slurm_plugin.slurm.interface import Limit
from slurm_plugin.why import words
from slurm_plugin.why.state import Finding, WaitingState

_REASON = re.compile(r"(Assoc|QOS)(Grp|Max|Min)(\w+)")
#: What a reason's middle is about: the part of Slurm's name of the limit, and its resource.
_KINDS = (
    ("SubmitJobs", "SubmitJobs", "submitted jobs"),
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
_UNITS = {"gres/gpu": "GPU", "cpu": "CPU", "node": "node", "jobs": "job", "mem": "MB of memory"}


def limit_reached(state: WaitingState) -> Finding | None:
    """The limit behind Slurm's reason; None for a reason that names none."""
    match = _REASON.fullmatch(state.job.reason)
    if match is None:
        return None
    scope, how, what = match.groups()
    found = _behind(state, scope, how, what)
    if found:
        return _told(found)
    whose = "its account or user" if scope == "Assoc" else f"QOS {state.details.qos or '?'}"
    text = f"waits because of a limit on {whose}, which Slurm calls {state.job.reason}"
    return Finding("limit", text)


def limit_in_the_way(state: WaitingState, need: Need) -> Finding | None:
    """A limit that the job would exceed, whatever Slurm's reason is; None where none is known."""
    amounts = {
        "gres/gpu": need.gpus * need.nodes,
        "cpu": need.cpus * need.nodes,
        "mem": need.memory_mb * need.nodes,
        "node": need.nodes,
        "jobs": 1,
    }
    owners = _owners(state, "Assoc") | _owners(state, "QOS")
    found = [
        one
        for one in _by_name(state)
        if _is_of(one, owners)
        and (one.used is not None or one.key.endswith("PJ"))
        and (one.used or 0) + amounts.get(one.resource, 0) > one.most
        and "Min" not in one.key
    ]
    return _told(found) if found else None


def _told(found: list[Limit]) -> Finding:
    facts = tuple(("limit", _in_full(one)) for one in found)
    first = found[0]
    most = _amount(first, first.most)
    if first.key.endswith("PJ"):
        text = f"asks for more than one job of {first.owner} may have: {most}"
        return Finding("limit", text, facts)
    used = "" if first.used is None else f", and {_amount(first, first.used)} {_in_use(first)}"
    verb = "run" if first.resource == "jobs" else "use"
    text = f"waits because {first.owner} may {verb} {most} at a time{used}"
    return Finding("limit", text, facts)


def _by_name(state: WaitingState) -> list[Limit]:
    """The limits; 22.05 tells a QOS's users by number, and the job's own one is named here."""
    number, name = f"user {state.job.uid} in QOS ", f"user {state.job.user} in QOS "
    return [replace(one, owner=one.owner.replace(number, name)) for one in state.limits]


def _owners(state: WaitingState, scope: str) -> set[str]:
    """Whose limits of this scope count for the job."""
    job, qos = state.job, f"QOS {state.details.qos}"
    if scope == "QOS":
        return {qos, f"user {job.user} in {qos}", f"account {job.account} in {qos}"}
    return {f"account {job.account}", f"user {job.user} in account {job.account}"}


def _is_of(limit: Limit, owners: set[str]) -> bool:
    return limit.owner.partition(" in partition ")[0] in owners


def _behind(state: WaitingState, scope: str, how: str, what: str) -> list[Limit]:
    """The limits that the reason may mean and that are met, the fullest first."""
    kind = next((one for one in _KINDS if one[0] in what), None)
    if kind is None:
        return []
    _, key, resource = kind
    is_run = "RunMin" in what
    owners = _owners(state, scope)
    found = [
        one
        for one in _by_name(state)
        if one.key.startswith(how + key)
        and one.resource.startswith(resource)
        and ("RunMins" in one.key) == is_run
        and _is_of(one, owners)
    ]
    return sorted(found, key=lambda one: (-(one.used or 0) / max(one.most, 1), one.owner))


def _amount(limit: Limit, count: int) -> str:
    unit = _UNITS.get(limit.resource, limit.resource)
    plural = "" if count == 1 or unit.endswith("memory") or limit.resource not in _UNITS else "s"
    return f"{count} {unit}{plural}"


def _in_use(limit: Limit) -> str:
    if limit.resource == "jobs":
        return "runs" if limit.used == 1 else "run"
    return f"{words.is_are(limit.used or 0)} in use"


def _in_full(limit: Limit) -> str:
    used = "" if limit.used is None else f", in use {limit.used}"
    return f"{limit.owner}: {limit.key} {limit.resource}={limit.most}{used}"
