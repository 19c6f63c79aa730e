"""Loans of the slots mode: which waiting jobs are asked about, and what is then done in Slurm."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from slurm_plugin.config import Rule
from slurm_plugin.engine.wish import WishError, read_wish
from slurm_plugin.remote.lending import Lending
from slurm_plugin.remote.offer import Declined
from slurm_plugin.slots.borrowing import Offered, may_borrow, offered
from slurm_plugin.slots.plan import Plan
from slurm_plugin.slots.room import Room
from slurm_plugin.slots.want import Want
from slurm_plugin.slurm.interface import QueuedJob

logger = logging.getLogger(__name__)

#: The rule for a job of (partition, account, uid).
RuleOf = Callable[[str, str, int], Rule]


class Broker:
    """Between the plan and `lending`; one thread at a time."""

    def __init__(self, lending: Lending, rule: RuleOf, clock: Callable[[], float]) -> None:
        self.lending = lending
        self._rule = rule
        self._clock = clock
        self.is_open = False

    def read(self, slurm_config: Mapping[str, str]) -> None:
        """Can anything be lent, by Slurm's settings and ours?"""
        self.is_open = False
        if self.lending.settings.allow:
            why = self.lending.obstacle(slurm_config)
            self.is_open = not why
            if why:
                logger.warning("remote: nothing is lent: %s (docs/remote-setup.md)", why)

    def borrow(self, job: QueuedJob, want: Want, room: Room) -> Offered | None:
        """Who would lend to a job that fits nowhere, where it and the site want that."""
        now, asked, kept = int(self._clock()), want.asked, want.kept
        if asked is None or want.need is None or not kept.get("remote") or not may_borrow(asked):
            return None
        if int(kept.get("loan_next") or 0) > now:
            return None
        rule = self._rule(job.partition, job.account, job.uid)
        try:
            if rule.mode != "enforce" or not read_wish(asked.hint, rule).remote:
                return None
        except WishError:
            return None
        end = now + job.time_limit_s if job.time_limit_s else float("inf")
        found = offered(want.need, room, self.lending.settings, end)
        return None if isinstance(found, Declined) else found

    def act(self, made: Plan, queue: Sequence[QueuedJob]) -> list[str]:
        """Loans that came to nothing first, then new ones, then whoever is left over.

        The names of the jobs whose loans Slurm refused.
        """
        for job, kept, why in made.broken:
            self.lending.give_up(job, kept, why)
        refused = [
            job.name
            for job, kept, found in made.offers
            if not self.lending.lend(job, kept, found.offer, made.room)
        ]
        self.lending.tidy(queue)
        return refused
