"""The jobs of one look that fit on no node now: who of them comes first, and who is lent to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from slurm_plugin.lending.borrowing import Candidate, Offered
from slurm_plugin.lending.offer import Declined
from slurm_plugin.lending.plan import LoanPlan
from slurm_plugin.queue import backfill
from slurm_plugin.queue.candidates import Need

DELAYS = Declined("GPUs of other nodes would make a job wait longer that came first", True)


class Lends(Protocol):
    """Asked about jobs that fit on no node."""

    @property
    def at_once(self) -> bool:
        """Are all of them to be asked about together?"""
        ...

    def borrow(
        self, jobs: Sequence[Candidate], made: LoanPlan
    ) -> Sequence[Offered | Declined | None]:
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
        self._asked: list[Candidate] = []

    def no_room(self, job_id: int, need: Need) -> None:
        """This job fits nowhere; the first one of these is not to be delayed."""
        self._waiting.append((job_id, need))
        self._made.first = self._first()

    def ask(self, candidate: Candidate) -> bool:
        """Who would lend to it? Whether it was lent to at once."""
        if self._lends is None:
            return False
        if self._lends.at_once:
            self._asked.append(candidate)
            return False
        [found] = self._lends.borrow([candidate], self._made)
        return self._answer(candidate, found)

    def settle(self) -> None:
        """Ask about all of them, where that is how it is done."""
        if self._lends is None or not self._asked:
            return
        answers = self._lends.borrow(self._asked, self._made)
        for candidate, found in zip(self._asked, answers, strict=True):
            self._answer(candidate, found)

    def _first(self, before: int = 0) -> Need | None:
        """The need of the first job that waits for local GPUs, of those before job `before`."""
        for job_id, need in self._waiting:
            if job_id == before:
                return None
            if job_id not in self._lent:
                return need
        return None

    def _answer(self, candidate: Candidate, found: Offered | Declined | None) -> bool:
        """A loan is made unless that delays the first one waiting; a refusal is told."""
        made, job, kept = self._made, candidate.job, candidate.kept
        if isinstance(found, Offered) and self._delays(job.job_id, found):
            found = DELAYS
        if isinstance(found, Declined) and found.by_choice:
            made.declined.append((job, kept, found))
        if not isinstance(found, Offered):
            return False
        for hold in found.holds:
            made.take(hold)
        # It waits for its donors alone now, and holds nobody back.
        self._lent.add(job.job_id)
        made.first = self._first()
        made.offers.append((job, kept, found))
        return True

    def _delays(self, job_id: int, found: Offered) -> bool:
        made, before = self._made, self._first(job_id)
        if before is None:
            return False
        return backfill.delays(before, made.room, made.holds, found.holds, self._now)
