"""What Slurm's own record says about the job that borrows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_plugin.errors import SlurmError

# The account comes last: where a site does not enforce accounts a user may write anything there.
_FIELDS = "%A|%U|%T|%P|%l|%a"
_RECORD = re.compile(
    r"(\d+)\|(\d+)\|([A-Z_]+)\|([\w.,+-]{1,1000})\|([0-9:-]+|UNLIMITED|NOT_SET)\|(.*)\n"
)
_ACCOUNT = re.compile(r"[\w.,:@+-]{1,255}")
_NONE = ("", "(null)", "N/A")


@dataclass(frozen=True, slots=True)
class Borrower:
    """A waiting job; `time_limit` (in sbatch's words) and `account` may be ''."""

    job_id: int
    uid: int
    partition: str
    time_limit: str
    account: str


def question(job_id: int) -> list[str]:
    """The command that shows a job. It is run as the job's user, who always sees it."""
    return ["squeue", "--noheader", f"--jobs={job_id}", f"--format={_FIELDS}"]


def borrower(job_id: int, uid: int, output: str) -> Borrower:
    """The job in squeue's output; SlurmError where it does not wait, or is not this user's."""
    match = _RECORD.fullmatch(output)
    if match is None or int(match[1]) != job_id:
        raise SlurmError(f"job {job_id}: squeue said {output[:80]!r}; expected one job that waits")
    state, account = match[3], match[6]
    if int(match[2]) != uid:
        raise SlurmError(f"job {job_id}: it is of uid {match[2]}; expected {uid}, as asked for")
    if state != "PENDING":
        raise SlurmError(f"job {job_id}: it is {state}; expected one that waits")
    if account in _NONE:
        account = ""
    elif not _ACCOUNT.fullmatch(account):
        raise SlurmError(f"job {job_id}: account {account[:60]!r} cannot be asked for again")
    return Borrower(job_id, uid, match[4], "" if match[5] == "NOT_SET" else match[5], account)
