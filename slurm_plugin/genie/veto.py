"""The start-time veto: a job starts when the plan says so, with the shape it says.

Slurm looks for a job to start the moment another ends; what is to start then was not planned yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.performance import Shape
from slurm_plugin.engine.decide import Decision
from slurm_plugin.protocol import Place, WaitFor

if TYPE_CHECKING:
    from slurm_plugin.genie.desk import Desk

#: A job that waits is woken by the plan, by the end of a job, or by this many seconds.
WAIT_S = 60
BEHIND = "genie: the queue is planned anew"
LATER = "genie: others go first"


def judged(desk: Desk, place: Place) -> Decision | None:
    """A wait, or None where the job may start: also when nothing is known of it."""
    note = why_not(desk, place, shape_of(place))
    return waits(place, note) if note else None


def why_not(desk: Desk, place: Place, shape: Shape | None) -> str:
    """Why the job of this question is not to start now with this shape; empty where it may."""
    domain = desk.site.domains.get(place.partition)
    if domain is None or "iterations=" not in place.hint:
        return ""
    now = desk.clock()
    mode = desk.rule(place.partition, place.account, place.uid).mode
    if mode != "enforce" or not desk.is_fresh(domain, now):
        return ""
    found = desk.plans.get(place.partition, {}).get(place.job)
    if found is None:
        return _unknown(desk, place, shape, now)
    _, plan = found
    if plan.nodes and plan.shape == shape:
        return ""
    return LATER if desk.seen == desk.heard else BEHIND


def _unknown(desk: Desk, place: Place, shape: Shape | None, now: float) -> str:
    """A job that no look has seen: it may start where its submit was told so."""
    # In the slots mode a thread asks, while submits are answered.
    for promise in list(desk.promises.values()):
        same = promise.uid == place.uid and promise.hint == place.hint
        if same and promise.until > now and promise.shape == shape:
            return "" if promise.nodes else LATER
    return ""


def shape_of(place: Place) -> Shape | None:
    """The shape Slurm would start the job with; None for no symmetric one."""
    counts = [node.own.bit_count() for node in place.nodes if node.own]
    return Shape(len(counts), counts[0]) if counts and len(set(counts)) == 1 else None


def waits(place: Place, note: str) -> Decision:
    """The decision to let the job wait; not written down: there is one for every end of a job."""
    return Decision(WaitFor(WAIT_S, note), "waits by plan", lambda: record(place, note))


def record(place: Place, note: str) -> dict[str, object]:
    """The line of the decision log."""
    return {
        "job": place.job,
        "array": place.array,
        "uid": place.uid,
        "account": place.account,
        "partition": place.partition,
        "hint": place.hint,
        "mode": "enforce",
        "decision": "wait",
        "applied": True,
        "why": "waits by plan",
        "note": note,
        "postponed": place.postponed,
        "waited_s": place.waited_s,
        "candidate_nodes": len(place.nodes),
        "wait_s": WAIT_S,
        "policy": "genie",
        "pattern": "ring",
    }
