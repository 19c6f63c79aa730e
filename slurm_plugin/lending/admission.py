"""The jobs of one poll that fit on no node now: which of them comes first, which may borrow."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_plugin.lending.choice.offer import Offer, Refusal
from slurm_plugin.lending.matcher import LoanMatcher
from slurm_plugin.lending.plan import LoanCandidate, LoanPlan
from slurm_plugin.queue import backfill
from slurm_plugin.queue.candidates import Need

DELAYS = Refusal("GPUs of other nodes would make a job wait longer that came first", True)


@dataclass(slots=True)
class LoanAdmission:
    """Takes these jobs in Slurm's order and finds loans, one by one or for all jobs at the end."""

    plan: LoanPlan
    #: Finds donors; None where nothing is lent.
    matcher: LoanMatcher | None
    now: float
    _waiting: list[tuple[int, Need]] = field(default_factory=list)
    _borrows: set[int] = field(default_factory=set)
    _candidates: list[LoanCandidate] = field(default_factory=list)

    def fits_nowhere(self, job_id: int, need: Need) -> None:
        """Note that this job fits on no node. No loan may delay the first of these jobs."""
        self._waiting.append((job_id, need))
        self.plan.first = self._first()

    def ask(self, candidate: LoanCandidate) -> bool:
        """Find donors for a job; whether the plan now has a loan for it."""
        if self.matcher is None:
            return False
        if self.matcher.at_once:
            self._candidates.append(candidate)
            return False
        [answer] = self.matcher.borrow([candidate], self.plan)
        return self._admit(candidate, answer)

    def settle(self) -> None:
        """Find donors for all jobs together, where that is how they are chosen."""
        if self.matcher is None or not self._candidates:
            return
        answers = self.matcher.borrow(self._candidates, self.plan)
        for candidate, answer in zip(self._candidates, answers, strict=True):
            self._admit(candidate, answer)

    def _first(self, before: int = 0) -> Need | None:
        """The need of the first job that waits for local GPUs, if that comes ahead of `before`."""
        for job_id, need in self._waiting:
            if job_id == before:
                return None
            if job_id not in self._borrows:
                return need
        return None

    def _admit(self, candidate: LoanCandidate, answer: Offer | Refusal | None) -> bool:
        """Plan a loan unless it delays the first job that waits; a refusal is kept for the user."""
        plan, job = self.plan, candidate.job
        first = self._first(job.job_id)
        if (
            isinstance(answer, Offer)
            and first is not None
            and backfill.delays(first, plan.nodes, plan.holds, answer.holds, self.now)
        ):
            answer = DELAYS
        if isinstance(answer, Refusal) and answer.by_choice:
            plan.refusals.append((job, candidate.record, answer))
        if not isinstance(answer, Offer):
            return False
        for hold in answer.holds:
            plan.take(hold)
        # It now waits for its donors alone, so nobody has to wait behind it.
        self._borrows.add(job.job_id)
        plan.first = self._first()
        plan.offers.append((job, candidate.record, answer))
        return True
