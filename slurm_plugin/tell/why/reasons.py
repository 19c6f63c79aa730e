"""Slurm's reasons that are neither about free nodes nor about limits."""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Callable, Sequence

from slurm_plugin.queue.demand import ABOUT_ACCESS, NOT_LOOKED_AT
from slurm_plugin.slurm import licenses
from slurm_plugin.slurm.interface import SlurmPartition
from slurm_plugin.tell.why import words
from slurm_plugin.tell.why.state import WaitingState, WaitReason

Rule = Callable[[WaitingState], WaitReason | None]
#: What keeps the job out of one of its partitions.
PartitionRule = Callable[[WaitingState, SlurmPartition], WaitReason | None]

#: What each kind of dependency waits for the other job to do, and how its failing is told.
_EVENTS = {
    "after": ("has started", "did not start"),
    "afterany": ("has ended", "did not end"),
    "afterok": ("has ended well", "did not end well"),
    "afternotok": ("has failed", "did not fail"),
    "aftercorr": ("has ended well, task by task", "did not end well"),
    "afterburstbuffer": ("has staged out its data", "did not stage out its data"),
}
_DEPENDENCY = re.compile(r"(after\w*):(\d+)(?:_(?:\d+|\*))?(?:\+\d+)?\((\w+)\)")
_STATES = {"PENDING": "waits itself", "RUNNING": "runs", "SUSPENDED": "is suspended",
           "CONFIGURING": "starts", "COMPLETING": "ends just now"}  # fmt: skip
#: What Slurm writes of a job whose reservation is gone, in place of its code.
_RESERVATION_GONE = re.compile(r"Reservation \S+ (was deleted|is invalid)\Z")
#: Reasons of which nothing more is known than a sentence.
_PLAIN = {
    "Cleaning": "waits until Slurm has cleaned up after its last run",
    "InvalidAccount": "cannot start: its account is not valid any more",
    "InvalidQOS": "cannot start: its QOS is not valid any more",
    "BurstBufferResources": "waits for space in the burst buffer",
    "BurstBufferStageIn": "waits until its data is in the burst buffer",
    "Prolog": "waits for its prolog to end",
    "DeadLine": "cannot start: its deadline can no longer be met",
    "FrontEndDown": "waits for a front end node, and none is up",
    "SchedDefer": "waits for Slurm's next look at its queue",
    "InactiveLimit": "is stopped: Slurm's inactive limit was reached",
    "JobLaunchFailure": "is held: its last start failed",
    "SystemFailure": "is held after a failure of Slurm, the filesystem or the network",
    "JobHoldMaxRequeue": "is held: it was requeued too often",
    "Constraints": "waits for a node that has what its --extra or --prefer names",
    "MpiPortsBusy": "waits for free MPI ports (MpiParams) on its nodes",
    "MaxPoweredUpNodes": "waits because no more nodes may be powered up (MaxPoweredUpNodes)",
    "NvidiaImexChannels": "waits for an NVIDIA IMEX channel: all of them are in use",
    "MaxMemPerLimit": "asks for more memory per node or CPU than its partition allows",
    "launch failure limit exceeded requeued held": "is held: its start failed too often, and only"
    " an administrator can release it",
}
#: What Slurm writes of a job that it put back and held itself, and that its user can release.
HELD_BY_SLURM = {
    "launch failed requeued held": "is held by Slurm: its node could not start it",
    "user env retrieval failed requeued held": "is held by Slurm: its node could not read its"
    " user's environment",
    "job requeued in held state": "is held: it ran, and was put back into the queue like that",
    "job requeued in special exit state": "is held by Slurm: it ended with a status for which jobs"
    " are put back and held",
}


def by_slurms_reason(state: WaitingState) -> WaitReason | None:
    """What Slurm's reason means; None where the nodes or a limit have to tell.

    Not for a job of which Slurm says nothing (`our_waits.says_nothing`).
    """
    reason = state.job.reason
    if reason in NOT_LOOKED_AT:
        # Slurm has not looked at the job since it was submitted, or since its gate was shut.
        if not state.job.depends:
            return _begin_time(state)
        return _never(state) if "(failed)" in state.job.dependency else _dependency(state)
    if (rule := _RULES.get(reason)) is not None:
        return rule(state)
    if reason.startswith(ABOUT_ACCESS):
        return _partition_access(state)
    if _RESERVATION_GONE.match(reason):
        return _reservation_gone(state)
    return WaitReason("slurm", _PLAIN[reason]) if reason in _PLAIN else None


def _dependency(state: WaitingState) -> WaitReason:
    waits, facts = [], []
    for kind, job, now in _DEPENDENCY.findall(state.job.dependency):
        if now == "unfulfilled":
            waits.append(f"job {job} {_EVENTS.get(kind, (kind,))[0]}")
            facts.append(("dependency", f"{kind}:{job}; job {job} {_state_of(int(job), state)}"))
    if "singleton(unfulfilled)" in state.job.dependency:
        waits.append("no other job of this name and user runs")
    joined = " or " if "?" in state.job.dependency else " and "
    shown = joined.join(waits[:3]) or "what its dependency names has happened"
    more = f" and {len(waits) - 3} more" if len(waits) > 3 else ""
    return WaitReason("dependency", f"waits until {shown}{more}", tuple(facts[: words.MAX_NAMED]))


def _state_of(job: int, state: WaitingState) -> str:
    for one in state.snapshot.jobs:
        if job in (one.job_id, one.array_id):
            return _STATES.get(one.state, one.state)
    return "is not in the queue that you may see"


def _never(state: WaitingState) -> WaitReason:
    failed = [
        f"job {job} {_EVENTS[kind][1]}"
        for kind, job, now in _DEPENDENCY.findall(state.job.dependency)
        if now == "failed" and kind in _EVENTS
    ]
    why = " and ".join(failed[:3]) or "its dependency cannot be fulfilled"
    change = f"scancel {state.job.job_id}, or scontrol update jobid={state.job.job_id} dependency="
    return WaitReason("dependency", f"can never start: {why}", (("to do", change),))


def _begin_time(state: WaitingState) -> WaitReason:
    begins = words.moment(state.begins_at)
    return WaitReason("begin time", f"is not to start before {begins} (--begin, or a requeue)")


def _held_by_user(state: WaitingState) -> WaitReason:
    why = HELD_BY_SLURM.get(state.job.reason, "is held by its user")
    facts = (("to do", f"scontrol release {state.job.name or state.job.job_id}"),)
    return WaitReason("held", f"{why}, until it is released", facts)


def _reservation_gone(state: WaitingState) -> WaitReason:
    why = "is held by Slurm, for its reservation is gone; once released it runs without one"
    fact = ("to do", f"scontrol release {state.job.name or state.job.job_id}")
    return WaitReason("held", why, (fact,))


def _held_by_admin(state: WaitingState) -> WaitReason:
    return WaitReason("held", "is held by an administrator, and only one can release it")


def _reservation(state: WaitingState) -> WaitReason | None:
    named = set(state.job.reservation.split(","))
    mine = (one for one in state.extras.reservations if one.name in named)
    reservations = sorted(mine, key=lambda one: one.start)
    if not reservations:
        return WaitReason("reservation", "waits for a reservation that is gone")
    if any(one.start <= state.now < one.end for one in reservations):
        return None
    first = reservations[0]
    if first.end <= state.now:
        return WaitReason("reservation", f"can never start: its reservation {first.name} is over")
    text = f"waits for its reservation {first.name}, which begins at {words.moment(first.start)}"
    nodes = words.named(first.nodes)
    return WaitReason("reservation", text, (("nodes", nodes),) if nodes else ())


def _licenses(state: WaitingState) -> WaitReason:
    return licence_lacking(state) or WaitReason("licence", "waits for a licence")


def licence_lacking(state: WaitingState) -> WaitReason | None:
    """The first licence of which too few are free; None where none is known to be."""
    asked = licenses.asked_for(state.job.licenses, state.extras.licenses)
    facts = [
        ("licence", f"{one.label}: {one.free} of {one.total} free, {needs} needed")
        for needs, layers in asked
        for one in layers
    ]
    for one, needs in licenses.lacking(state.job.licenses, asked):
        lacks = f"{one.free or 'none'} of {one.total} {one.label} is free, and it needs {needs}"
        few = tuple(facts[: words.MAX_NAMED])
        return WaitReason("licence", f"waits for a licence: {lacks}", few)
    return None


def _array_limit(state: WaitingState) -> WaitReason:
    job = state.job
    number = f" {job.throttle}" if job.throttle else ""
    runs = f"only{number} of its array's tasks may run at a time"
    update = f"scontrol update jobid={job.array_id or job.job_id} arraytaskthrottle=N"
    return WaitReason(
        "array", f"waits for other tasks: {runs} (%{job.throttle})", (("to do", update),)
    )


def array_limit_reached(state: WaitingState) -> WaitReason | None:
    """The array's own limit, where as many of its tasks run as it allows; None where not."""
    job, most = state.job, state.job.throttle
    running = sum(
        one.array_id == job.array_id and one.state != "PENDING" for one in state.snapshot.jobs
    )
    return _array_limit(state) if most and job.array_id and running >= most else None


def partition_state(state: WaitingState) -> WaitReason:
    """None of its partitions is up."""
    said = " and ".join(f"{one.name}, which is {one.state}" for one in state.partitions)
    return WaitReason("partition", f"waits for partition {said or state.job.partition}")


def partitions_down(state: WaitingState) -> WaitReason | None:
    """That no partition of the job starts any; None where one does."""
    is_down = [one.state in ("DOWN", "INACTIVE") for one in state.partitions]
    return partition_state(state) if is_down and all(is_down) else None


def _partition_limit(state: WaitingState) -> WaitReason:
    too_much = WaitReason("partition", "asks for more time or nodes than its partition allows")
    return over_partition_limit(state) or too_much


def over_partition_limit(state: WaitingState) -> WaitReason | None:
    """The limit of its partitions that the job's request exceeds; None where one allows it."""
    return _in_all(state, _over_limit)


def refusals(state: WaitingState) -> dict[str, WaitReason]:
    """Each partition of the job that would not take it, and by which rule.

    Of groups only this host's own are known.
    """
    rules = (_over_account_or_qos, _over_groups, _over_limit)
    by_name = {one.name: _first_of(rules, state, one) for one in state.partitions}
    return {name: reason for name, reason in by_name.items() if reason is not None}


def _in_all(state: WaitingState, *rules: PartitionRule) -> WaitReason | None:
    """What these rules say where each of the job's partitions keeps it out by one of them."""
    reasons = [_first_of(rules, state, one) for one in state.partitions]
    return reasons[0] if reasons and all(reasons) else None


def _first_of(
    rules: Sequence[PartitionRule], state: WaitingState, one: SlurmPartition
) -> WaitReason | None:
    return next(filter(None, (rule(state, one) for rule in rules)), None)


def _over_limit(state: WaitingState, one: SlurmPartition) -> WaitReason | None:
    job = state.job
    if one.max_time_s and not 0 < job.time_limit_s <= one.max_time_s:
        asked = f"-t {words.duration(job.time_limit_s)}" if job.time_limit_s else "no time limit"
        return _over(one, asked, one.max_time_s)
    if 0 < one.max_nodes < job.min_nodes:
        return _over(one, words.nodes(job.min_nodes), 0)
    return None


def _partition_access(state: WaitingState) -> WaitReason:
    """The partition does not take the job, by its account, QOS or group."""
    too_little = WaitReason(
        "partition", "cannot start: its partition does not take its user's jobs"
    )
    return not_taken(state) or _in_all(state, _over_groups) or too_little


def _partition_config(state: WaitingState) -> WaitReason:
    """Any of its partition's settings; 22.05 says so of groups, too."""
    refusal = _in_all(state, _over_account_or_qos, _over_limit, _over_groups)
    return refusal or WaitReason("partition", "cannot start: its partition's settings rule it out")


def _over_groups(state: WaitingState, one: SlurmPartition) -> WaitReason | None:
    """The groups that a partition is for, where the job's user is in none of them."""
    user = state.job.user
    owner = state.snapshot.settings.config.get("SlurmUser", "").partition("(")[0]
    if not one.allow_groups or state.job.uid == 0 or user == owner:
        return None
    if _groups_of(user) & set(one.allow_groups):
        return None
    whose = f"and user {user} is not in {'it' if len(one.allow_groups) == 1 else 'them'}"
    return _is_for(one, "group", one.allow_groups, whose)


def _groups_of(user: str) -> set[str]:
    """As this host knows them; none for a user that it does not know."""
    try:
        numbers = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
        return {grp.getgrgid(number).gr_name for number in numbers}
    except KeyError:
        return set()


def not_taken(state: WaitingState) -> WaitReason | None:
    """The rule on accounts and QOS by which no partition of the job takes it.

    Of accounts Slurm gives no reason where the rule was made after the job's submit.
    """
    return _in_all(state, _over_account_or_qos)


def _over_account_or_qos(state: WaitingState, one: SlurmPartition) -> WaitReason | None:
    """Accounts are left out where those above the job's are not known.

    A rule on those holds for it, too.
    """
    config, qos = state.snapshot.settings.config, state.job.qos
    is_enforced = "associations" in config.get("AccountingStorageEnforce", "")
    accounts = state.accounts if is_enforced and state.extras.parents and state.job.account else ()
    if accounts and one.allow_accounts and not set(one.allow_accounts) & set(accounts):
        of = f"and the job is of account {accounts[0]}"
        return _is_for(one, "account", one.allow_accounts, of)
    if denied := [name for name in accounts if name in one.deny_accounts]:
        return _is_closed(one, f"account {denied[0]}")
    if qos and one.allow_qos and qos not in one.allow_qos:
        return _is_for(one, "QOS", one.allow_qos, f"and the job has QOS {qos}")
    return _is_closed(one, f"QOS {qos}") if qos in one.deny_qos else None


def _is_for(partition: SlurmPartition, what: str, names: Sequence[str], but: str) -> WaitReason:
    plural = "s" if len(names) > 1 and what != "QOS" else ""
    text = f"partition {partition.name} is for {what}{plural} {words.named(names)} alone, {but}"
    return WaitReason("partition", f"cannot start: {text}")


def _is_closed(partition: SlurmPartition, whom: str) -> WaitReason:
    return WaitReason("partition", f"cannot start: partition {partition.name} is closed to {whom}")


def _over(partition: SlurmPartition, asked: str, time_s: int) -> WaitReason:
    most = f"-t {words.duration(time_s)}" if time_s else words.nodes(partition.max_nodes)
    text = f"can never start: it asks for {asked}, and partition {partition.name}"
    return WaitReason("partition", f"{text} allows {most} at most")


_RULES: dict[str, Rule] = {
    "Dependency": _dependency,
    "DependencyNeverSatisfied": _never,
    "JobHeldUser": _held_by_user,
    **dict.fromkeys(HELD_BY_SLURM, _held_by_user),
    "JobHeldAdmin": _held_by_admin,
    "Reservation": _reservation,
    **dict.fromkeys(("ReservationDeleted", "ReservationInvalid"), _reservation_gone),
    "Licenses": _licenses,
    "JobArrayTaskLimit": _array_limit,
    "PartitionDown": partition_state,
    "PartitionInactive": partition_state,
    "PartitionTimeLimit": _partition_limit,
    "PartitionNodeLimit": _partition_limit,
    "QOSNotAllowed": _partition_access,
    "AccountNotAllowed": _partition_access,
    "PartitionConfig": _partition_config,
}
