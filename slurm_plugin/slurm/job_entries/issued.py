"""What replies to submits write into AdminComment, until a reading shows their jobs.

A record in a job's first reading counts if a reply issued it: by its token, which nobody can guess.
Where somebody replaced the whole comment before that reading, a job gets the one reply that no
other job shows and that fits it: same user, same second, same hint, same request, same gate. While
several differ, or the reading began before the reply, the next readings decide. A reply that the
bridge may give to equal submits of the next second fits more than one job.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.brackets import DONOR, LOAN, SHAPE, SLOTS, TOPO, joined, split
from slurm_plugin.base.job_notes.donor import DonorReport, borrower_in
from slurm_plugin.base.job_notes.records import GATED, MAY, GateRecord
from slurm_plugin.base.job_notes.shape import shape_note_in
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.slurm.job_entries.rules import needed_at_slurm, records

#: Submits and notes whose jobs no reading has shown yet.
MOST_EXPECTED = 10_000
#: A job submitted so soon after the engine's start may be a former engine's, in seconds.
MARGIN_S = 5.0
#: A job's token; further jobs with the same reply have `TOKEN-1`, `TOKEN-2`, ...
_TOKEN = re.compile(r"\b(?:token|t)=([0-9A-Za-z]+)((?:-\d+)?)")
#: Seconds between a reply and the submit time that Slurm shows of its job.
SAME_S = 2.0
#: Added to a job's number, which stands behind its token where the bridge's own suffix is lost.
_LOST = 1_000_000_000
#: A job that no reading shows that began so many seconds after its reply will not come any more.
LATE_S = 10.0


class _Reply(NamedTuple):
    """A reply whose job no reading has shown."""

    uid: int
    #: As an epoch, and by the store's clock.
    at: float
    clock: float
    ours: dict[str, str]
    #: Until when (epoch) the job waits behind its gate; 0 for none.
    gate: int
    #: The bridge may give it to further submits.
    is_kept: bool

    @property
    def hint(self) -> str:
        """The hint of the job's submit."""
        return hints.hint_in(joined(self.ours, ""))

    @property
    def record(self) -> str:
        """What the reply says of the job's gate, loan and shape."""
        return joined(records(self.ours), "")


class IssuedEntries:
    """Replies are added by the thread that answers, and read by the one that reads the queue."""

    def __init__(self, since: float) -> None:
        #: When (epoch) the engine began to issue; before that another one may have.
        self.since = since
        self._lock = threading.Lock()
        self._by_token: dict[str, dict[str, str]] = {}
        self._unseen: dict[str, _Reply] = {}
        #: Those whose first job was seen, and that further jobs may have.
        self._kept: dict[str, _Reply] = {}

    def add(
        self, comment: str, uid: int, at: float, clock: float, gate: int = 0, is_kept: bool = False
    ) -> str:
        """Keep a reply's AdminComment; what of it goes to Slurm where notes do not.

        `gate` is when the job may start by itself, `is_kept` whether the bridge may use it again.
        """
        ours, rest = split(comment)
        with self._lock:
            for token, _ in _TOKEN.findall(f"{ours.get(SLOTS)} {ours.get(SHAPE)}")[:1]:
                self._by_token[token] = ours
                self._unseen[token] = _Reply(uid, at, clock, ours, gate, is_kept)
                bound(self._by_token)
                bound(self._unseen)
        return joined(needed_at_slurm(ours, "PENDING", 0, False), rest)

    def seen(self, comments: Iterable[str]) -> None:
        """The comments of the jobs that a reading shows for the first time."""
        with self._lock:
            for token, _ in _TOKEN.findall("\n".join(comments)) if self._unseen else ():
                self._shown(token)

    def gone(self, began: float) -> None:
        """Forget the replies whose jobs the reading that began then had to show."""
        with self._lock:
            for some in (self._unseen, self._kept):
                for token in [t for t, one in some.items() if one.clock < began - LATE_S]:
                    del some[token]

    def has_other(self, job: QueuedJob, ours: Mapping[str, str]) -> bool:
        """Has the job's comment a token that was issued for another submit than these entries?"""
        mine = set(_TOKEN.findall(joined(ours, "")))
        with self._lock:
            tokens = set(_TOKEN.findall(job.admin_comment)) - mine
            return any(token in self._by_token for token, _ in tokens)

    def first(self, job: QueuedJob, shown: Mapping[str, str], began: float) -> dict[str, str]:
        """A job's entries in its first reading, without what only looks like ours.

        The reading began then, and `seen` was told of all its jobs.
        """
        tokens: Iterable[tuple[str, str]] = _TOKEN.findall(job.admin_comment)
        with self._lock:
            known = [(*one, self._by_token[one[0]]) for one in tokens if one[0] in self._by_token]
        if known:
            token, suffix, issued = known[0]
            return {kind: _named(text, token, suffix) for kind, text in issued.items()}
        if replaced := self.replaced(job, began):
            return replaced
        # A job that a reply may be to is no former engine's.
        is_older = job.submit <= self.since + MARGIN_S and not self.may_show(job)
        return {
            kind: text
            for kind, text in shown.items()
            if (is_older and kind != DONOR) or _may_be_first(kind, text, job)
        }

    def replaced(self, job: QueuedJob, began: float) -> dict[str, str]:
        """The entries that a job had before somebody replaced its comment; {} if not known (yet).

        The reading began then, and `seen` was told of all its jobs.
        """
        with self._lock:
            # Later replies are to jobs that the reading need not show.
            fitting = {t: one for t, one in self._fitting(job).items() if one.clock < began}
            # A hint by an option of sbatch does not stand in the job's comment.
            hint = hints.hint_in_user_comment(job.comment)
            same = {t: one for t, one in fitting.items() if one.hint == hint}
            fitting = same or fitting
            # Notes may differ.
            if len({one.hint + one.record.replace(f"={t}", "") for t, one in fitting.items()}) != 1:
                return {}
            token, reply = next(iter(fitting.items()))
            suffix = "" if self._shown(token) else f"-{_LOST + job.job_id}"
        return {kind: _named(text, token, suffix) for kind, text in reply.ours.items()}

    def may_show(self, job: QueuedJob) -> bool:
        """May a later reading say which reply was to this job?"""
        with self._lock:
            return bool(self._fitting(job))

    def _fitting(self, job: QueuedJob) -> dict[str, _Reply]:
        """The replies that may be to this job, those without a job first."""
        replies = {**self._unseen, **self._kept} if self._kept else self._unseen
        return {token: reply for token, reply in replies.items() if _may_be_to(reply, job)}

    def _shown(self, token: str) -> bool:
        """The reply has a job; False if it had one already."""
        reply = self._unseen.pop(token, None)
        if reply is not None and reply.is_kept:
            self._kept[token] = reply
        return reply is not None


def _may_be_to(reply: _Reply, job: QueuedJob) -> bool:
    """Does the job ask for what this reply says, in the same second, behind the same gate?"""
    if (job.uid, job.state) != (reply.uid, "PENDING") or abs(job.submit - reply.at) > SAME_S:
        return False
    if reply.gate and job.eligible not in (0, reply.gate):
        return False
    comment = joined(reply.ours, "")
    hint = hints.hint_in_user_comment(job.comment)
    if hint and hint != reply.hint:
        return False
    gate, note = GateRecord.read_from(comment), shape_note_in(comment)
    if gate is not None and (gate.state != GATED or gate.requests != job.requests):
        return False
    return note is None or note.shape is None or note.shape.nodes == job.min_nodes


def _named(text: str, token: str, suffix: str) -> str:
    """The entry with the token of this very job."""
    return text.replace(f"={token}", f"={token}{suffix}")


def _may_be_first(kind: str, text: str, job: QueuedJob) -> bool:
    """May an entry without a token of ours stand there before the engine has seen the job?"""
    if kind == DONOR:
        report = DonorReport.read_from(job.comment)
        return report is not None and report.borrower == borrower_in(joined({DONOR: text}, ""))
    state = text.partition(" ")[0]
    # The bridge holds a job for which no engine chose a shape.
    return kind == TOPO or (kind == LOAN and state == MAY) or (kind == SHAPE and state == "none")


def bound(kept: dict[Any, Any]) -> None:
    """Forget the oldest of what is expected, beyond MOST_EXPECTED."""
    while len(kept) > MOST_EXPECTED:
        del kept[next(iter(kept))]
