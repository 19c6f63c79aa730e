"""Waits that are ours: a loan in the making, a policy that waits, a gate, a shape to be chosen.

They show in Slurm as a begin time or a hold; what they are stands in our entries about the job.
"""

from __future__ import annotations

import re

from slurm_plugin.base.job_notes import donor, hints
from slurm_plugin.base.job_notes.loan import Loan
from slurm_plugin.base.job_notes.records import GATED, MEETS, GateRecord, JobRecord, LoanRecord
from slurm_plugin.base.job_notes.shape import shape_note_in
from slurm_plugin.queue.demand import NOT_LOOKED_AT
from slurm_plugin.tell.why import words
from slurm_plugin.tell.why.state import WaitingState, WaitReason

#: The select plugin's note on a job that it put off (select/pure/admin_comment.c).
_POSTPONED = re.compile(r"waiting (\d+)/(\d+) since (\d+): (.*?)(?: \(until (\d+), begin \d+\))?\Z")
#: No wait of ours goes on under these: Slurm itself keeps the job, whatever we wrote before.
_SLURMS_OWN = ("JobHeldAdmin", "Dependency", "DependencyNeverSatisfied")


def our_wait(state: WaitingState) -> WaitReason | None:
    """The wait of ours that keeps the job; None where Slurm's reason is the answer."""
    if state.job.reason in _SLURMS_OWN:
        return None
    kept = GateRecord.read_from(state.entries) or LoanRecord.read_from(state.entries)
    return _donor(state) or _meets(state, kept) or _postponed(state, kept) or _without_shape(state)


def is_gated(state: WaitingState) -> bool:
    """Does only our gate keep the job, which opens when its GPUs are free?"""
    kept = GateRecord.read_from(state.entries)
    is_closed = kept is not None and kept.state == GATED and kept.begin <= state.now
    return is_closed and state.job.reason in NOT_LOOKED_AT


def says_nothing(state: WaitingState) -> bool:
    """Is Slurm's reason none, that of our gate, or of a begin time that is over?

    After a submit or an update Slurm gives none until it looks at the job, and `BeginTime` after a
    gate is opened or --begin has passed; then anything may keep it. What a job depends on goes
    before either.
    """
    if state.job.depends:
        return False
    is_over = state.begins_at <= state.now
    return is_gated(state) or (state.job.reason in NOT_LOOKED_AT and is_over)


def gate_facts(state: WaitingState) -> tuple[tuple[str, str], ...]:
    """What is told of the gate beside the cause."""
    kept = GateRecord.read_from(state.entries)
    if kept is None:
        return ()
    facts = [("gate", "the engine lets it go as soon as its GPUs are free and nobody is delayed")]
    if kept.tries:
        when = f"; the next is at {words.moment(kept.retry_at)}" if kept.retry_at else ""
        times = "a release" if kept.tries == 1 else f"{kept.tries} releases"
        facts.append(("gate", f"{times} came to nothing{when}"))
    if kept.may_borrow and (note := hints.note_in(state.entries)):
        facts.append(("not lent", note))
    return tuple(facts)


def _donor(state: WaitingState) -> WaitReason | None:
    borrower = donor.borrower_in(state.entries)
    if not borrower:
        return None
    return WaitReason("loan", f"is to lend its GPUs to job {borrower}, and waits for their node")


def _meets(state: WaitingState, kept: JobRecord | None) -> WaitReason | None:
    loan = kept.loan if kept is not None else None
    if kept is None or loan is None or kept.state not in (GATED, MEETS):
        return None
    lent = " and ".join(f"{words.gpus(one.gpus)} of {one.node}" for one in loan.donors)
    own = f"{words.gpus(loan.mask.bit_count())} of {loan.host}"
    text = f"waits for its loan: {lent} get ready, to serve it beside {own}"
    return WaitReason("loan", text, _loan_facts(kept, loan))


def _loan_facts(kept: JobRecord, loan: Loan) -> tuple[tuple[str, str], ...]:
    facts = [
        ("donor", f"job {one.job_id} on {one.node}{', ready' if one.port else ''}")
        for one in loan.donors
    ]
    return (*facts, ("lent because", kept.loan_reason)) if kept.loan_reason else tuple(facts)


def _postponed(state: WaitingState, kept: JobRecord | None) -> WaitReason | None:
    """A policy found GPUs for the job, and waits for better ones."""
    note = hints.note_in(state.entries)
    match = _POSTPONED.fullmatch(note)
    if match and state.job.reason == "BeginTime":
        times, most, since, why, until = match.groups()
        facts = [("postponed", f"{times} of {most} times, since {words.moment(int(since))}")]
        if until:
            facts.append(("asked again", f"at {words.moment(int(until))}, or when a job ends"))
    elif is_gated(state) and isinstance(kept, GateRecord) and kept.get("since") and note:
        why, facts = note, [("waits since", words.moment(kept.since))]
    else:
        return None
    return WaitReason(
        "policy", f"could start, but its policy waits for better GPUs: {why}", tuple(facts)
    )


def _without_shape(state: WaitingState) -> WaitReason | None:
    note = shape_note_in(state.entries)
    if note is None or note.shape is not None or note.is_held or not state.job.held:
        return None
    return WaitReason("shape", "waits until the engine has chosen its nodes and GPUs")
