"""Why one job waits: the first cause that explains it."""

from __future__ import annotations

import math
from dataclasses import replace

from gres_topology.features import Unsupported
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import end_of
from slurm_plugin.queue.demand import READY, Unplaceable
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.tell.why import our_waits, sooner, words
from slurm_plugin.tell.why.estimate import limit_of, timeline_of
from slurm_plugin.tell.why.limits import limit_in_the_way, limit_reached
from slurm_plugin.tell.why.reasons import (
    array_limit_reached,
    by_slurms_reason,
    licence_lacking,
    not_taken,
    over_partition_limit,
    partitions_down,
)
from slurm_plugin.tell.why.resources import NEVER, shortage_of
from slurm_plugin.tell.why.site import QueueOrder, SiteNodes, ahead_of, need_of_job, site_of
from slurm_plugin.tell.why.state import HIDDEN, Answer, WaitingState, WaitReason

#: Causes that no job's end changes.
NOT_HELD = ("impossible", "nodes")
#: Jobs ahead that are named, and that are planned for the estimate.
MAX_SHOWN, MAX_AHEAD = 5, 20
#: Slurm's reasons, beside READY, that the state of the nodes explains.
ABOUT_NODES = ("ReqNodeNotAvail", "BadConstraints", "NodeDown", "Reservation")


def answer(state: WaitingState, lending: RemoteConfig | None = None) -> Answer:
    """The cause, its evidence, and when the job could start.

    `lending` is the site's, where it is known: whether GPUs of other nodes are lent.
    """
    reason = not_on_the_nodes(state)
    if reason is not None:
        return _told(state, reason)
    site = site_of(state)
    try:
        need = need_of_job(state.job, site, state.entries)
        ahead = ahead_of(state)
        found, first = on_the_nodes(state, site, need, ahead)
        reason = _as_slurm_sees_it(state, found)
        ours = _our_start(state, site, need, ahead)
        is_next = reason.cause == "next"
        changes = () if is_next else sooner.changes(state, site, need, first, lending)
    except (Unplaceable, Unsupported) as error:
        return _told(state, _not_judged(state.job, error))
    return replace(_told(state, reason), our_start=ours, sooner=changes)


def cause(state: WaitingState, site: SiteNodes, order: QueueOrder) -> Answer:
    """The same without any planning: the cause and its evidence, for many jobs of one snapshot.

    `site` is `site_of` this state or another one that sees the same nodes.
    """
    reason = not_on_the_nodes(state)
    if reason is None:
        try:
            need = need_of_job(state.job, site, state.entries)
            found, _ = on_the_nodes(state, site, need, order.ahead_of(state.job))
            reason = _as_slurm_sees_it(state, found)
        except (Unplaceable, Unsupported) as error:
            reason = _not_judged(state.job, error)
    return _told(state, reason)


def not_on_the_nodes(state: WaitingState) -> WaitReason | None:
    """A cause that the nodes' state does not change; None where the nodes have to tell."""
    reason = our_waits.our_wait(state)
    if reason is None and not our_waits.says_nothing(state):
        reason = limit_reached(state) or by_slurms_reason(state) or not_taken(state)
        return reason or _by_another_reason(state.job)
    return reason


def _as_slurm_sees_it(state: WaitingState, reason: WaitReason) -> WaitReason:
    """What was found on the nodes, as sure as Slurm is of it.

    Slurm has more rules than are known here. So a job can never start only where Slurm, too, found
    no node for it; and that it fits is no promise, as Slurm would start it.
    """
    code, known = state.job.reason.partition(",")[0], "as far as is known here"
    if reason.cause == "impossible" and code != "BadConstraints":
        wait = "waits" if our_waits.says_nothing(state) else f"waits, as Slurm says, for {code}"
        what = reason.text.removeprefix(NEVER)
        return replace(reason, cause="slurm", text=f"{wait}; {known} {what}")
    if reason.cause == "next":
        has_looked = not our_waits.says_nothing(state) and code not in ("", "None")
        looked = f"Slurm said {code} when it last looked" if has_looked else "Slurm is to look next"
        return replace(reason, text=f"{reason.text} {known}; {looked}")
    return reason


def _not_judged(job: QueuedJob, error: Unplaceable | Unsupported) -> WaitReason:
    """Slurm's own word for a job whose request is not judged here."""
    text = f"waits, as Slurm says, for {_slurms_word(job)}"
    if isinstance(error, Unplaceable):
        return WaitReason("slurm", f"{text}; {error.why}")
    facts = (("constraint", str(error)),)
    return WaitReason("slurm", f"{text}; its --constraint is not judged", facts)


def _by_another_reason(job: QueuedJob) -> WaitReason | None:
    """Slurm's own word for a reason that the nodes do not explain; None where they may."""
    code = job.reason.partition(",")[0]
    if code in READY or code in ABOUT_NODES or code.startswith("Nodes required"):
        return None
    return WaitReason("slurm", f"waits for what Slurm calls {words.quoted(job.reason)}")


def _told(state: WaitingState, because: WaitReason) -> Answer:
    name = state.job.name or str(state.job.job_id)
    reason = ("Slurm says", _slurms_word(state.job))
    # A begin time is no plan, and may be that of a gate; a job that is held has none.
    is_planned = state.job.start > state.now and state.job.reason in (*READY, "ReqNodeNotAvail")
    start = state.job.start if is_planned and not state.job.held else 0
    facts = (*because.evidence, reason)
    return Answer(name, because.cause, f"Job {name} {because.text}.", facts, slurm_start=start)


def _slurms_word(job: QueuedJob) -> str:
    return job.reason if job.reason not in ("", "None") else "nothing yet"


def on_the_nodes(
    state: WaitingState, site: SiteNodes, need: Need, ahead: list[QueuedJob]
) -> tuple[WaitReason, Need | None]:
    """What is missing, or who goes first; and the need of the first job, which is not delayed.

    `ahead` are the jobs that are to start before this one.
    """
    first_job, first = _first_that_waits(ahead, site)
    shortage = shortage_of(need, site)
    facts = (*_gate(state), *_ahead_facts(ahead))
    if shortage is not None:
        after = _after(ahead, state) if shortage.cause not in NOT_HELD else ""
        evidence = (*shortage.evidence, *facts)
        return WaitReason(shortage.cause, shortage.text + after, evidence), first
    if our_waits.says_nothing(state) and (shortage := _kept_by_slurm(state, need)) is not None:
        return replace(shortage, evidence=(*shortage.evidence, *facts)), first
    # Of nodes on which a layered licence lacks Slurm says what it says of nodes in use.
    if state.job.reason.startswith("ReqNodeNotAvail") and (lacks := licence_lacking(state)):
        return replace(lacks, evidence=(*lacks.evidence, *facts)), first
    hold = site.hold(need, site.nodes, end_of(state.job, state.now))
    where = f" on {words.named(tuple(hold.gpus))}" if hold else ""
    is_late = hold is not None and first is not None and site.delays(first, [hold], state.now)
    if first_job is not None and is_late:
        text = f"would fit{where} now, but that would delay {_called(first_job)}, which comes first"
        return WaitReason("backfill", text, facts), first
    if hold is None:
        text = f"waits for {words.nodes(need.nodes)} with all that it asks for at once"
        return WaitReason("gpus", text + _after(ahead, state), facts), first
    if ahead or (state.job.reason == "Priority" and state.hides_jobs):
        return WaitReason("priority", f"would fit{where} now{_after(ahead, state)}", facts), first
    return WaitReason("next", f"fits{where} now", facts), first


def _kept_by_slurm(state: WaitingState, need: Need) -> WaitReason | None:
    """Why Slurm would not start a job whose GPUs are free and whose reason does not say it."""
    return (
        partitions_down(state)
        or not_taken(state)
        or over_partition_limit(state)
        or array_limit_reached(state)
        or licence_lacking(state)
        or limit_in_the_way(state, need)
    )


def _gate(state: WaitingState) -> tuple[tuple[str, str], ...]:
    return our_waits.gate_facts(state) if our_waits.is_gated(state) else ()


def _first_that_waits(
    ahead: list[QueuedJob], site: SiteNodes
) -> tuple[QueuedJob | None, Need | None]:
    """The first job ahead that waits for what others hold, and what it needs."""
    for job in ahead[:MAX_AHEAD]:
        try:
            need = need_of_job(job, site)
            shortage = shortage_of(need, site)
            if shortage is not None and shortage.cause not in NOT_HELD:
                return job, need
        except (Unplaceable, Unsupported):
            continue
    return None, None


def _after(ahead: list[QueuedJob], state: WaitingState) -> str:
    """Who goes first, as the end of a sentence."""
    if not ahead:
        hidden = state.hides_jobs and state.job.reason == "Priority"
        return "; jobs of others, which you may not see, come first" if hidden else ""
    if len(ahead) == 1:
        return f"; {_called(ahead[0])} comes first"
    return f"; {words.jobs(len(ahead))} come first, the next is {_called(ahead[0])}"


def _called(job: QueuedJob) -> str:
    if job.uid == HIDDEN:
        return "another user's job"
    return f"job {job.name or job.job_id} of {job.user or job.uid}"


def _ahead_facts(ahead: list[QueuedJob]) -> tuple[tuple[str, str], ...]:
    facts = []
    for job in ahead[:MAX_SHOWN]:
        if job.uid == HIDDEN:
            facts.append(("ahead", _called(job)))
            continue
        asked = ", ".join(filter(None, job.requests)) or "no GPUs"
        facts.append(("ahead", f"{_called(job)}, priority {job.priority}: {asked[:60]}"))
    if len(ahead) > MAX_SHOWN:
        facts.append(("ahead", f"and {words.jobs(len(ahead) - MAX_SHOWN)} more"))
    return tuple(facts)


def _our_start(state: WaitingState, site: SiteNodes, need: Need, ahead: list[QueuedJob]) -> int:
    """When it starts if all run to their time limits, 0 where that cannot be told."""
    if state.hides_jobs or len(ahead) > MAX_AHEAD:
        return 0
    placed = timeline_of(ahead, site, state.now).place(need, limit_of(state.job))
    return math.ceil(placed[0]) if placed and placed[0] > state.now else 0
