"""What AdminComment tells of a job's loan: who lends what, or why nothing was lent."""

from __future__ import annotations

from typing import Any

from slurm_plugin import admin_comment
from slurm_plugin.admin_comment import LOAN, Bracket
from slurm_plugin.lending import loan as loans


def in_comment(comment: str, is_waiting: bool = True) -> dict[str, Any]:
    """The loan's keys, or none for a job that neither borrows nor lends.

    `is_waiting`: the job has not started; where GPUs are chosen then, only Slurm tells.
    `host`, `gpus`, `donors` and `why` of one that borrows; `waits`, `tries` and `next` (epoch)
    of one that would; `lends_to` of a donor.
    """
    if parent := admin_comment.donor_of(comment):
        return {"lends_to": parent}
    kept = admin_comment.read(comment) or admin_comment.read(comment, LOAN)
    if kept is None or not kept.get("remote"):
        return {}
    loan = loans.read(kept.get(loans.KEY))
    if loan is None:
        waits = kept.state == "gated" or (kept.state == "may" and is_waiting)
        return _waiting(kept, admin_comment.note_in(comment)) if waits else {}
    return {
        "asked": kept.get("tpn") or kept.get("tpj"),
        "host": loan.host,
        "gpus": loans.gpus_of(loan.mask),
        "donors": [
            {"node": one.node, "gpus": loans.gpus_of(one.mask), "job": one.job_id}
            for one in loan.lenders
        ],
        "why": kept.get(loans.WHY),
    }


def _waiting(kept: Bracket, note: str) -> dict[str, Any]:
    tries, until = kept.get("loan_tries"), kept.get("loan_next")
    found: dict[str, Any] = {"asked": kept.get("tpn") or kept.get("tpj"), "waits": note}
    if tries.isdecimal():
        found["tries"] = int(tries)
    if until.isdecimal():
        found["next"] = int(until)
    return found
