"""Looks at Slurm's queue and acts: the thread's part of the loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from slurm_plugin.engine.decide import Decider
from slurm_plugin.engine.wish import WishError, read_wish
from slurm_plugin.errors import SlurmError
from slurm_plugin.remote import loan as loans
from slurm_plugin.remote.at_start import look, room
from slurm_plugin.remote.at_start.look import REQUEUED_S, Plan, Terms
from slurm_plugin.remote.at_start.mode import AtStart
from slurm_plugin.remote.at_start.reserved import Kept, Reserved
from slurm_plugin.remote.lending import Lending
from slurm_plugin.remote.loan import Loan
from slurm_plugin.remote.offer import Offer, may_borrow, offer
from slurm_plugin.slots import bracket
from slurm_plugin.slots.bracket import Bracket
from slurm_plugin.slots.candidates import Need
from slurm_plugin.slots.room import Room
from slurm_plugin.slurm.interface import (
    JobUpdate,
    QueuedJob,
    SlurmClient,
    SlurmNode,
    SlurmPartition,
)

logger = logging.getLogger(__name__)

#: Partitions and Slurm's settings change seldom; they are read this often.
SETTINGS_S = 60.0
#: A loan that Slurm refused is not tried again so soon.
REFUSED_S = 30.0


class Seen(NamedTuple):
    """What one look read."""

    queue: list[QueuedJob]
    nodes: list[SlurmNode]


class Lender:
    """One look after the other at one Slurm. Not for two threads at once."""

    def __init__(
        self,
        client: SlurmClient,
        decider: Decider,
        lending: Lending,
        how: AtStart,
        reserved: Reserved,
        grace_s: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._decider = decider
        self._lending = lending
        self._how = how
        self._reserved = reserved
        self._grace_s = grace_s
        self._clock = clock
        self._partitions: list[SlurmPartition] = []
        self._lends = False
        self._settings_at = float("-inf")
        self._refused: dict[str, float] = {}

    def look(self, may_lend: bool) -> Plan:
        """Read, decide, act. `may_lend` False: loans end. SlurmError where Slurm is silent."""
        # The queue first: a job that starts in between is then counted twice, never missed.
        seen = Seen(self._client.queue(), self._client.nodes())
        self._read_settings()
        made = self._plan(seen, may_lend and self._lends)
        self._reserved.keep(made.kept | self._offered(made.offers))
        self._act(made, seen.queue)
        return made

    def counts(self) -> Mapping[str, int]:
        """What `gputopo status` shows."""
        return dict(self._lending.counts)

    def _read_settings(self) -> None:
        now = self._clock()
        if now - self._settings_at <= SETTINGS_S:
            return
        self._partitions = self._client.partitions()
        settings = self._client.config()
        self._how.is_basic = settings.get("PriorityType", "") == "priority/basic"
        why = self._lending.obstacle(settings)
        if why:
            logger.warning("remote: nothing is lent: %s (docs/remote-setup.md)", why)
        self._lends = not why
        self._settings_at = now

    def _plan(self, seen: Seen, lends: bool) -> Plan:
        now = int(self._clock())
        pending = [job for job in seen.queue if job.state == "PENDING"]
        self._how.now = now
        self._how.highest = max((job.priority for job in pending), default=0)
        tiers = {partition.name: partition.priority_tier for partition in self._partitions}
        terms = Terms(now, tiers, self._grace_s, self._how.ready_s if lends else None)
        running = [job for job in seen.queue if job.state != "PENDING"]
        nodes = room.room_of(seen.nodes, running)
        return look.plan(seen.queue, nodes, terms, self._how, self._borrow if lends else None)

    def _borrow(self, job: QueuedJob, kept: Bracket, need: Need, nodes: Room) -> Offer | None:
        """Who would lend to a job that fits nowhere, where it and the site want that."""
        now = int(self._clock())
        pause = max(int(kept.get("loan_next") or 0), self._refused.get(job.name, 0))
        if job.array_id or job.het_id or pause > now or not may_borrow(room.submit_of(job)):
            return None
        rule = self._decider.rule(job.partition, job.account, job.uid)
        try:
            wish = read_wish(bracket.hint_in(job.admin_comment), rule)
        except WishError:
            return None
        if rule.mode != "enforce" or not wish.remote:
            return None
        end = now + job.time_limit_s if job.time_limit_s else float("inf")
        return offer(need, nodes, self._lending.settings, end)

    def _offered(self, offers: Sequence[tuple[QueuedJob, Bracket, Offer]]) -> dict[int, Kept]:
        """What is kept for loans whose donors have no ids yet."""
        until = self._until()
        found = {}
        for job, _, offered in offers:
            # No job has a negative id: these stand for the donors.
            lenders = enumerate(offered.donors.items(), 1)
            nobody = [loans.Lender(node, mask, -i) for i, (node, mask) in lenders]
            loan = Loan(offered.host, offered.mask, tuple(nobody))
            found[job.job_id] = Kept(look.shares_of(job.job_id, loan), until)
        return found

    def _until(self) -> float:
        return self._clock() + self._how.ready_s + REQUEUED_S

    def _act(self, made: Plan, queue: Sequence[QueuedJob]) -> None:
        """Starts first: they are what people wait for; then ends, then new loans."""
        for job, update in made.starts:
            self._update(job, (update,))
        for job, updates in made.back:
            self._update(job, updates)
        for job, kept, why in made.broken:
            self._lending.give_up(job, kept, why)
        now = self._clock()
        self._refused = {name: until for name, until in self._refused.items() if until > now}
        for job, kept, offered in made.offers:

            def told(loan: Loan, job_id: int = job.job_id) -> None:
                self._reserved.add(job_id, Kept(look.shares_of(job_id, loan), self._until()))

            if not self._lending.lend(job, kept, offered, made.room, told):
                self._refused[job.name] = self._clock() + REFUSED_S
                self._reserved.drop(job.job_id)
        self._lending.tidy(queue)

    def _update(self, job: QueuedJob, updates: Sequence[JobUpdate]) -> None:
        """One after the other; where one is refused, none follows: the next look knows."""
        try:
            for update in updates:
                self._client.update([job.name], update)
        except SlurmError as error:
            logger.warning("remote: job %s: %s", job.name, error)
