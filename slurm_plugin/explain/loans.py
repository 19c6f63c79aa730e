"""What AdminComment tells of a job's loan: who lends what, or why nothing was lent."""

from __future__ import annotations

from typing import Any

from slurm_plugin.job_notes import donor, hints
from slurm_plugin.job_notes.loan import gpu_indices
from slurm_plugin.job_notes.records import GATED, MAY, GateRecord, JobRecord, LoanRecord


def in_comment(comment: str, is_waiting: bool = True) -> dict[str, Any]:
    """The loan's keys, or none for a job that neither borrows nor lends.

    `is_waiting`: the job has not started; where GPUs are chosen then, only Slurm tells.
    `host`, `gpus`, `donors` and `why` of one that borrows; `waits`, `tries` and `next` (epoch)
    of one that would; `lends_to` of a donor.
    """
    if parent := donor.borrower_in(comment):
        return {"lends_to": parent}
    kept = GateRecord.read_from(comment) or LoanRecord.read_from(comment)
    if kept is None or not kept.may_borrow:
        return {}
    loan = kept.loan
    if loan is None:
        waits = kept.state == GATED or (kept.state == MAY and is_waiting)
        return _waiting(kept, hints.note_in(comment)) if waits else {}
    return {
        "asked": kept.asked,
        "host": loan.host,
        "gpus": gpu_indices(loan.mask),
        "donors": [
            {"node": one.node, "gpus": gpu_indices(one.mask), "job": one.job_id}
            for one in loan.donors
        ],
        "why": kept.loan_reason,
    }


def _waiting(kept: JobRecord, note: str) -> dict[str, Any]:
    found: dict[str, Any] = {"asked": kept.asked, "waits": note}
    if kept.loan_tries:
        found["tries"] = kept.loan_tries
    if kept.next_loan_at:
        found["next"] = kept.next_loan_at
    return found
