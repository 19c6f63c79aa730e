"""The jobs of one poll that fit on no node now: which of them comes first, which may borrow."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_plugin.act.lending import forms
from slurm_plugin.act.lending.choice.offer import Offer, Refusal
from slurm_plugin.act.lending.matcher import LoanMatcher
from slurm_plugin.act.lending.plan import LoanCandidate, LoanPlan
from slurm_plugin.queue import backfill
from slurm_plugin.queue.candidates import Need
from slurm_plugin.slurm.interface import QueuedJob

DELAYS = Refusal("GPUs of other nodes would make a job wait longer that came first", True)


@dataclass(slots=True)
class LoanAdmission:
    """Takes these jobs in Slurm's order and finds loans, one by one or for all jobs at the end."""

    plan: LoanPlan
    #: Finds donors; None where nothing is lent.
    matcher: LoanMatcher | None
    now: float
    _waiting: list[tuple[QueuedJob, Need]] = field(default_factory=list)
    _borrows: set[int] = field(default_factory=set)
    _candidates: list[LoanCandidate] = field(default_factory=list)

    def fits_nowhere(self, job: QueuedJob, need: Need) -> None:
        """Note that this job fits on no node. No loan may delay the first of these jobs."""
        self._waiting.append((job, need))
        self.plan.first = self._first()
        if self.plan.waits is None:
            self.plan.waits = job

    def ask(self, candidate: LoanCandidate) -> bool:
        """Find donors for a job; whether the plan now has a loan for it."""
        if self.matcher is None:
            return False
        if candidate.obstacle:
            # A component's comment would be written to all of its heterogeneous job.
            if candidate.record.may_borrow and not candidate.job.het_id:
                why = Refusal(forms.line(candidate.obstacle), by_choice=True)
                self.plan.refuse(candidate.job, candidate.record, why)
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

    def _first(self, before: QueuedJob | None = None) -> Need | None:
        """The need of the first job that waits for local GPUs, if that comes ahead of `before`.

        Which task of an array starts first is all the same: none of them waits for another.
        """
        for job, need in self._waiting:
            if before is not None and job.job_id == before.job_id:
                return None
            is_sibling = before is not None and job.array_id and job.array_id == before.array_id
            if job.job_id not in self._borrows and not is_sibling:
                return need
        return None

    def _admit(self, candidate: LoanCandidate, answer: Offer | Refusal | None) -> bool:
        """Plan a loan unless it delays the first job that waits; a refusal is kept for the user."""
        plan, job = self.plan, candidate.job
        first = self._first(job)
        if (
            isinstance(answer, Offer)
            and first is not None
            and backfill.delays(first, plan.nodes, plan.holds, answer.holds, self.now)
        ):
            answer = DELAYS
        if isinstance(answer, Refusal) and answer.by_choice:
            plan.refuse(job, candidate.record, answer)
        if not isinstance(answer, Offer):
            return False
        for hold in answer.holds:
            plan.take(hold)
        if job.tasks > 1:
            plan.splits.append(job)
            plan.again = True
            return True
        # It now waits for its donors alone, so nobody has to wait behind it.
        self._borrows.add(job.job_id)
        plan.first = self._first()
        plan.offers.append((job, candidate.record, answer))
        return True
