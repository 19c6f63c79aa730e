"""Lines of the decision log about loans: made, not made, come to nothing."""

from __future__ import annotations

from typing import Any

from policies.contract.bits import gpus_of
from slurm_plugin.decide.record import Build
from slurm_plugin.job_notes import hints
from slurm_plugin.job_notes.loan import Loan
from slurm_plugin.job_notes.records import JobRecord
from slurm_plugin.lending.choice.offer import Refusal
from slurm_plugin.lending.ledger import Lent
from slurm_plugin.slurm.interface import QueuedJob

#: The words of these lines; no other decision has them.
LENT, NOT_LENT, LOAN_OVER = "lent", "not lent", "loan over"
DECISIONS = (LENT, NOT_LENT, LOAN_OVER)
#: A donor ended: what it lent, how long, and what passed. It decides nothing.
GIVEN_BACK = "given back"


def lent(job: QueuedJob, record: JobRecord, loan: Loan, why: str) -> Build:
    """A loan was made; its donors start now."""
    return lambda: {
        **_who(job, record),
        "decision": LENT,
        "why": why,
        **members(loan),
    }


def members(loan: Loan) -> dict[str, Any]:
    """Who lends what to which node, as the log and `gputopo explain` tell it."""
    donors = [
        {"node": one.node, "gpus": list(gpus_of(one.mask)), "job": one.job_id}
        for one in loan.donors
    ]
    return {"host": loan.host, "gpus": list(gpus_of(loan.mask)), "donors": donors}


def refused(job: QueuedJob, record: JobRecord, why: Refusal) -> Build:
    """The job could borrow, and had better wait."""
    return lambda: {**_who(job, record), "decision": NOT_LENT, "why": why.why}


def over(job: QueuedJob, record: JobRecord, why: str, pause_s: int) -> Build:
    """A loan came to nothing; the next try comes after `pause_s` seconds."""
    return lambda: {**_who(job, record), "decision": LOAN_OVER, "why": why, "pause_s": pause_s}


def taken_back(job: QueuedJob, record: JobRecord, by: str) -> Build:
    """A borrower was requeued for a job that waits for local GPUs."""
    why = f"its GPUs were taken back for job {by}; it was requeued"
    return lambda: {**_who(job, record), "decision": LOAN_OVER, "why": why, "pause_s": 0}


def ended(one: Lent) -> Build:
    """What a donor lent until it ended."""
    return lambda: {
        "job": one.borrower,
        "array": 0,
        "uid": one.uid,
        "account": one.account,
        "partition": one.partition,
        "decision": GIVEN_BACK,
        "donor": one.donor,
        "node": one.node,
        "gpus": one.gpus,
        "seconds": one.seconds,
        "bytes_in": one.passed.received,
        "bytes_out": one.passed.sent,
        "packets_in": one.passed.packets,
    }


def _who(job: QueuedJob, record: JobRecord) -> dict[str, Any]:
    return {
        "job": job.job_id,
        "array": 0,
        "uid": job.uid,
        "account": job.account,
        "partition": job.partition,
        "hint": hints.hint_in(job.admin_comment),
        "asked": record.asked or job.tres_per_node or job.tres_per_job,
    }
