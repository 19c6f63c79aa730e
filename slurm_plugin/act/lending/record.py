"""Lines of the decision log about loans: made, not made, come to nothing."""

from __future__ import annotations

from typing import Any

from policies.contract.bits import gpus_of
from slurm_plugin.act.lending.choice.offer import Refusal
from slurm_plugin.act.lending.ledger import Lent
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.loan import Loan
from slurm_plugin.base.job_notes.records import JobRecord
from slurm_plugin.base.log_lines import GivenBackLine, LentBy, LentLine, LoanOverLine, NotLentLine
from slurm_plugin.decide.record import Build
from slurm_plugin.slurm.interface import QueuedJob


def lent(job: QueuedJob, record: JobRecord, loan: Loan, why: str) -> Build:
    """A loan was made; its donors start now."""
    return lambda: LentLine(**_who(job, record), why=why, **members(loan))


def members(loan: Loan) -> dict[str, Any]:
    """Who lends what to which node, as the log and `gputopo explain` tell it."""
    donors = tuple(
        LentBy(node=one.node, gpus=gpus_of(one.mask), job=one.job_id) for one in loan.donors
    )
    return {"host": loan.host, "gpus": gpus_of(loan.mask), "donors": donors}


def refused(job: QueuedJob, record: JobRecord, why: Refusal) -> Build:
    """The job could borrow, and had better wait."""
    return lambda: NotLentLine(**_who(job, record), why=why.why)


def over(job: QueuedJob, record: JobRecord, why: str, pause_s: int) -> Build:
    """A loan came to nothing; the next try comes after `pause_s` seconds."""
    return lambda: LoanOverLine(**_who(job, record), why=why, pause_s=pause_s)


def taken_back(job: QueuedJob, record: JobRecord, by: str) -> Build:
    """A borrower was requeued for a job that waits for local GPUs."""
    why = f"its GPUs were taken back for job {by}; it was requeued"
    return over(job, record, why, 0)


def ended(one: Lent) -> Build:
    """What a donor lent until it ended."""
    return lambda: GivenBackLine(
        job=one.borrower,
        uid=one.uid,
        account=one.account,
        partition=one.partition,
        donor=one.donor,
        node=one.node,
        gpus=one.gpus,
        seconds=one.seconds,
        bytes_in=one.passed.received,
        bytes_out=one.passed.sent,
        packets_in=one.passed.packets,
    )


def _who(job: QueuedJob, record: JobRecord) -> dict[str, Any]:
    return {
        "job": job.job_id,
        "uid": job.uid,
        "account": job.account,
        "partition": job.partition,
        "hint": hints.hint_in(job.admin_comment),
        "asked": record.asked or job.tres_per_node or job.tres_per_job,
    }
