"""The jobs of one look that fit on no node now: who of them comes first, and who is lent to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from slurm_plugin.lending.borrowing import Offered
from slurm_plugin.lending.offer import Declined
from slurm_plugin.lending.plan import LoanPlan
from slurm_plugin.queue import backfill
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import with_hold
from slurm_plugin.queue.want import Want
from slurm_plugin.slurm.interface import QueuedJob

DELAYS = Declined("GPUs of other nodes would make a job wait longer that came first", True)


#: A job that fits on no node now, and what it wants.
Asked = tuple[QueuedJob, Want]


class Lends(Protocol):
    """Asked about jobs that fit on no node."""

    @property
    def at_once(self) -> bool:
        """Are all of them to be asked about together?"""
        ...

    def borrow(self, jobs: Sequence[Asked], made: LoanPlan) -> Sequence[Offered | Declined | None]:
        """Who would lend to each; None to a job that may not borrow."""
        ...


class Askers:
    """Collects them in Slurm's order, and asks for loans: one by one, or about all at the end."""

    def __init__(self, made: LoanPlan, lends: Lends | None, now: float) -> None:
        self._made = made
        self._lends = lends
        self._now = now
        self._waiting: list[tuple[int, Need]] = []
        self._lent: set[int] = set()
        self._asked: list[tuple[QueuedJob, Want]] = []

    def no_room(self, job: QueuedJob, need: Need) -> None:
        """This job fits nowhere; the first one of these is not to be delayed."""
        self._waiting.append((job.job_id, need))
        self._made.first = self._first()

    def ask(self, job: QueuedJob, want: Want) -> bool:
        """Who would lend to it? Whether it was lent to at once."""
        if self._lends is None:
            return False
        if self._lends.at_once:
            self._asked.append((job, want))
            return False
        [found] = self._lends.borrow([(job, want)], self._made)
        return self._answer(job, want, found)

    def settle(self) -> None:
        """Ask about all of them, where that is how it is done."""
        if self._lends is None or not self._asked:
            return
        answers = self._lends.borrow(self._asked, self._made)
        for (job, want), found in zip(self._asked, answers, strict=True):
            self._answer(job, want, found)

    def _first(self, before: int = 0) -> Need | None:
        """The need of the first job that waits for local GPUs, of those before job `before`."""
        for job_id, need in self._waiting:
            if job_id == before:
                return None
            if job_id not in self._lent:
                return need
        return None

    def _answer(self, job: QueuedJob, want: Want, found: Offered | Declined | None) -> bool:
        """A loan is made unless that delays the first one waiting; a refusal is told."""
        made = self._made
        if isinstance(found, Offered) and self._delays(job, found):
            found = DELAYS
        if isinstance(found, Declined) and found.by_choice:
            made.declined.append((job, want.kept, found))
        if not isinstance(found, Offered):
            return False
        for hold in found.holds:
            made.take(hold)
        # It waits for its donors alone now, and holds nobody back.
        self._lent.add(job.job_id)
        made.first = self._first()
        made.offers.append((job, want.kept, found))
        return True

    def _delays(self, job: QueuedJob, found: Offered) -> bool:
        made, before = self._made, self._first(job.job_id)
        if before is None:
            return False
        room, holds = made.room, [*made.holds, *found.holds]
        for hold in found.holds:
            room = with_hold(room, hold)
        start = backfill.earliest_start(before, made.room, made.holds, self._now)
        return backfill.earliest_start(before, room, holds, self._now) > start
