"""What Slurm itself tells about a job: its state, and our entries in AdminComment.

For users who reach no engine. They are told of their own jobs only, root and SlurmUser of all. Of
jobs that ended long ago sacct still knows the comment.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any

import msgspec

from slurm_plugin.act.lending.record import members
from slurm_plugin.base.job_notes import donor, hints
from slurm_plugin.base.job_notes.records import GATED, MAY, GateRecord, JobRecord, LoanRecord
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.job_entries.saved import JobEntries
from slurm_plugin.slurm.runner import Runner
from slurm_plugin.tell.explain.answer import NotShown, unknown

_PAIR = re.compile(r"(?:^|\s)([A-Z][A-Za-z/:]*)=(\S*)")
_SLURM_USER = re.compile(r"^SlurmUser\s*=\s*\S*?\((\d+)\)", re.MULTILINE)
_ADMIN_COMMENT = re.compile(r"(?:^|\s)AdminComment=(.*?)(?= [A-Z][A-Za-z/:]*=|$)")
_COMMENT = re.compile(r"(?:^|\s)Comment=(.*?)(?= [A-Z][A-Za-z/:]*=|$)")
#: Of so many donors Slurm is asked whether they answer.
MOST_DONORS = 8


def operators(run: Runner) -> frozenset[int]:
    """Uids the engine may run as, and that may see every job: root and SlurmUser."""
    match = _SLURM_USER.search(run(["scontrol", "show", "config"]))
    return frozenset({0, int(match[1])} if match else {0})


def job_number(run: Runner, text: str) -> int:
    """The job id behind `123` or `123_4`; NotShown for a task that Slurm no longer holds."""
    if text.isdecimal():
        return int(text)
    try:
        reply = run(["scontrol", "--oneliner", "show", "job", text])
    except SlurmError as error:
        raise NotShown(f"job {text}: Slurm no longer knows this task; ask by its job id") from error
    return int(_pairs(reply.splitlines()[0])["JobId"])


def story_of_slurm(run: Runner, job: int, operators: frozenset[int]) -> dict[str, Any]:
    """The story as far as Slurm knows it. Raises NotShown like the engine's side."""
    uid = os.getuid()
    facts = _of_controller(run, job) or _of_accounting(run, job)
    if facts is None or (uid not in operators and facts["uid"] != uid):
        raise NotShown(unknown(job))
    comment = facts["admin_comment"]
    story = {"job": job, "source": "Slurm", **facts}
    if hints.has_hint(comment):
        story |= {"hint": hints.hint_in(comment), "note": hints.note_in(comment)}
    loan = _loan(run, facts)
    story.pop("comment", None)
    return story | {"loan": loan} if loan else story


def story_of_engine(job: int, entries: JobEntries) -> dict[str, Any]:
    """The story as far as the engine's own notes know it."""
    text = entries.text()
    story: dict[str, Any] = {"job": job, "source": "the engine's notes", "uid": entries.uid}
    story |= {"state": entries.state, "entries": text}
    story |= {"hint": hints.hint_in(text), "note": hints.note_in(text)}
    loan = loan_in(text, entries.state == "PENDING")
    return story | {"loan": loan} if loan else story


def now_of(run: Runner, job: int) -> tuple[str, dict[str, Any]]:
    """State with reason, and the loan (`loan_in`); both empty for a job Slurm no longer holds."""
    facts = _of_controller(run, job)
    return (str(facts["state"]), _loan(run, facts)) if facts else ("", {})


def _loan(run: Runner, facts: dict[str, Any]) -> dict[str, Any]:
    is_waiting = str(facts["state"]).startswith("PENDING")
    loan = loan_in(facts["admin_comment"], is_waiting)
    if not is_waiting:
        for one in loan.get("donors", [])[:MOST_DONORS]:
            with contextlib.suppress(SlurmError):
                said = _of_controller(run, int(one["job"])) or {}
                report = donor.DonorReport.read_from(said.get("comment", ""))
                if report and report.idle_since:
                    one["idle_since"] = report.idle_since
    return loan


def _of_controller(run: Runner, job: int) -> dict[str, Any] | None:
    try:
        reply = run(["scontrol", "--oneliner", "show", "job", str(job)])
    except SlurmError as error:
        if "nvalid job id" in str(error):
            return None
        raise
    lines = reply.splitlines()
    if not lines:
        return None
    pairs = _pairs(lines[0])
    uid = re.search(r"\((\d+)\)", pairs.get("UserId", ""))
    comment, own = _ADMIN_COMMENT.search(lines[0]), _COMMENT.search(lines[0])
    reason = pairs.get("Reason", "None")
    state = pairs.get("JobState", "")
    return {
        "uid": int(uid[1]) if uid else -1,
        "state": state if reason in ("None", "") else f"{state} ({reason})",
        "admin_comment": comment[1].strip() if comment else "",
        "comment": own[1].strip() if own else "",
    }


def _of_accounting(run: Runner, job: int) -> dict[str, Any] | None:
    fields = "JobIDRaw,UID,State,AdminComment"
    try:
        reply = run(["sacct", "-X", "-n", "-P", "-j", str(job), "-o", fields])
    except SlurmError:
        # A cluster without accounting.
        return None
    for line in reply.splitlines():
        number, uid, state, comment = [*line.split("|", 3), "", "", "", ""][:4]
        if number == str(job) and uid.isdecimal():
            return {"uid": int(uid), "state": state, "admin_comment": comment}
    return None


def _pairs(line: str) -> dict[str, str]:
    # The first of a key counts: what a user wrote into a comment stands behind it.
    pairs: dict[str, str] = {}
    for key, value in _PAIR.findall(line):
        pairs.setdefault(key, value)
    return pairs


def loan_in(comment: str, is_waiting: bool = True) -> dict[str, Any]:
    """Who lends what by AdminComment, or why nothing was lent; empty for all other jobs.

    A borrower has `host`, `gpus`, `donors` and `why`; a job that would borrow `waits`, `tries` and
    `next` (epoch); a donor `lends_to`. `is_waiting`: the job has not started.
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
    lent: dict[str, Any] = msgspec.to_builtins(members(loan))
    return {"asked": kept.asked, **lent, "why": kept.loan_reason}


def _waiting(kept: JobRecord, note: str) -> dict[str, Any]:
    waiting: dict[str, Any] = {"asked": kept.asked, "waits": note}
    if kept.loan_tries:
        waiting["tries"] = kept.loan_tries
    if kept.next_loan_at:
        waiting["next"] = kept.next_loan_at
    return waiting
