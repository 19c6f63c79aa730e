"""Loans of the slots mode: which waiting jobs are asked about, and what is then done in Slurm."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from slurm_plugin.config.sections import Rule, WaitingConfig
from slurm_plugin.decide.preferences import HintRefused, Preferences, read_preferences
from slurm_plugin.decide.record import Build
from slurm_plugin.job_notes import hints
from slurm_plugin.job_notes.records import is_ahead
from slurm_plugin.job_profiles import Remote
from slurm_plugin.lending import borrowing, record
from slurm_plugin.lending.batch import Round
from slurm_plugin.lending.borrowing import Candidate, Offered, may_borrow
from slurm_plugin.lending.donors import LONGEST_PAUSE_S, Lending
from slurm_plugin.lending.loads import loads_of
from slurm_plugin.lending.network_use import UNKNOWN, NetworkUse, network_use
from slurm_plugin.lending.offer import Borrower, Declined, Market, Offer, offer
from slurm_plugin.lending.plan import LoanPlan
from slurm_plugin.lending.solver import Solver, Starting
from slurm_plugin.queue.capacity import end_of
from slurm_plugin.slurm.interface import QueuedJob

logger = logging.getLogger(__name__)

#: The rule for a job of (partition, account, uid).
RuleOf = Callable[[str, str, int], Rule]


class Broker:
    """Between the plan and `lending`; one thread at a time.

    `profiles` are what the site wrote of its jobs, by name; `write` takes lines of the decision
    log.
    """

    def __init__(
        self,
        lending: Lending,
        rule: RuleOf,
        waiting: WaitingConfig,
        write: Callable[[Build], None],
        clock: Callable[[], float],
        profiles: Mapping[str, Remote],
    ) -> None:
        self.lending = lending
        self._rule = rule
        self._waiting = waiting
        self._write = write
        self._clock = clock
        self._profiles = profiles
        self._solver = Solver(lending.settings.solve_s) if self.at_once else None
        self._loads: Mapping[str, float] = {}
        self.is_open = False

    @property
    def at_once(self) -> bool:
        """Is one question asked about all jobs together?"""
        return self.lending.settings.decider == "drmaestro"

    def read(self, slurm_config: Mapping[str, str]) -> None:
        """Can anything be lent, by Slurm's settings and ours?"""
        self.is_open = False
        if self.lending.settings.allow:
            why = self.lending.obstacle(slurm_config)
            self.is_open = not why
            if why:
                logger.warning("remote: nothing is lent: %s (docs/remote-setup.md)", why)

    def look(self, queue: Sequence[QueuedJob]) -> None:
        """What the loans that run take of the nodes' networks."""
        if not self.at_once:
            return
        running = []
        for job in queue:
            if job.state == "PENDING" or "loan=" not in job.admin_comment:
                continue
            kept = self.lending.mode.kept(job)
            loan = kept.loan if kept else None
            if loan is not None:
                running.append((loan, self._use_of(job).share))
        self._loads = loads_of(running)

    def borrow(self, jobs: Sequence[Candidate], made: LoanPlan) -> list[Offered | Declined | None]:
        """Who would lend to each of these jobs; None to one that may not borrow now."""
        now = int(self._clock())
        asked = [self._borrower(candidate, made, now) for candidate in jobs]
        borrowers = [one for one in asked if one is not None]
        if not borrowers:
            return [None] * len(jobs)
        is_auto = any(one.is_auto for one in borrowers)
        gone = borrowing.releases(made.holds, now) if is_auto else []
        market = replace(borrowing.market(made.room, gone), loads=self._loads)
        answers = iter(self._decide(borrowers, market, made))
        found: list[Offered | Declined | None] = []
        for candidate, one in zip(jobs, asked, strict=True):
            answer = None if one is None else next(answers)
            if isinstance(answer, Offer):
                end = end_of(candidate.job, now)
                holds = borrowing.holds(answer, candidate.need, self.lending.settings, end)
                found.append(Offered(answer, holds))
            else:
                found.append(answer)
        return found

    def _decide(
        self, jobs: Sequence[Borrower], market: Market, made: LoanPlan
    ) -> Sequence[Offer | Declined | None]:
        settings = self.lending.settings
        if self._solver is None:
            return [offer(job, market, settings) for job in jobs]
        most = self._waiting.max_postponements
        try:
            return Round(jobs, market, settings, self._solver, most).decide()
        except Starting:
            made.again = True
            return [None] * len(jobs)

    def _borrower(self, candidate: Candidate, made: LoanPlan, now: int) -> Borrower | None:
        """The job where it and the site want that it borrows, and where it may now."""
        job, kept, need = candidate.job, candidate.kept, candidate.need
        # Counted for the whole job its GPUs may be more than any node has.
        if not kept.may_borrow or not may_borrow(candidate.demand) or need.nodes > 1:
            return None
        preferences = self._preferences(job)
        if preferences is None or is_ahead(kept.next_loan_at, now, LONGEST_PAUSE_S):
            return None
        step_s = max(1, self._waiting.step_s)
        held = kept.held_by_network_since or now
        return replace(
            borrowing.borrower(need, made.room),
            is_auto=preferences.is_auto,
            limit_s=job.time_limit_s or math.inf,
            use=self._use(preferences),
            rounds_waited=max(0, now - job.submit) // step_s,
            postponed=max(0, now - held) // step_s,
        )

    def _preferences(self, job: QueuedJob) -> Preferences | None:
        """What the job prefers where it may borrow; None where it may not."""
        rule = self._rule(job.partition, job.account, job.uid)
        try:
            preferences = read_preferences(hints.hint_in(job.admin_comment), rule)
        except HintRefused:
            return None
        return preferences if rule.mode == "enforce" and preferences.remote else None

    def _use_of(self, job: QueuedJob) -> NetworkUse:
        preferences = self._preferences(job)
        return UNKNOWN if preferences is None else self._use(preferences)

    def _use(self, preferences: Preferences) -> NetworkUse:
        return network_use(preferences.profile, self._profiles, self.lending.settings.wires)

    def act(self, made: LoanPlan, queue: Sequence[QueuedJob]) -> list[str]:
        """Loans that came to nothing first, then new ones, then whoever is left over.

        The names of the jobs whose loans Slurm refused.
        """
        there = {job.job_id: job for job in queue}
        for job, kept, why in made.broken:
            pause_s = self.lending.give_up(job, kept, why, there)
            self._write(record.over(job, kept, why, pause_s))
        for job, kept, declined in made.declined:
            if self.lending.decline(job, kept, declined):
                self._write(record.declined(job, kept, declined))
        refused = []
        for job, kept, found in made.offers:
            loan = self.lending.lend(job, kept, found.offer, made.room)
            if loan is None:
                refused.append(job.name)
            else:
                self._write(record.lent(job, kept, loan, found.offer.why))
        self.lending.tidy(queue)
        return refused

    def close(self) -> None:
        """End what runs beside the engine."""
        if self._solver is not None:
            self._solver.close()
