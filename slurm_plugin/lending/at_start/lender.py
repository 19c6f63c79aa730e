"""Looks at Slurm's queue and acts: the thread's part of the loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from slurm_plugin.errors import SlurmError
from slurm_plugin.job_notes.loan import Loan, LoanDonor
from slurm_plugin.lending import loan as loans
from slurm_plugin.lending.at_start import look
from slurm_plugin.lending.at_start.look import REQUEUED_S, Plan, Terms
from slurm_plugin.lending.at_start.mode import AtStart
from slurm_plugin.lending.at_start.reserved import Kept, Reserved
from slurm_plugin.lending.broker import Broker
from slurm_plugin.queue.capacity import nodes_of
from slurm_plugin.queue.snapshot import Settings, Snapshot
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob, SlurmClient

logger = logging.getLogger(__name__)

#: A loan that Slurm refused is not tried again so soon.
REFUSED_S = 30.0


class Lender:
    """One look after the other at one Slurm. Not for two threads at once."""

    def __init__(
        self,
        client: SlurmClient,
        broker: Broker,
        how: AtStart,
        reserved: Reserved,
        grace_s: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._broker = broker
        self._how = how
        self._reserved = reserved
        self._grace_s = grace_s
        self._clock = clock
        self._settings: Settings | None = None
        self._refused: dict[str, float] = {}
        broker.lending.told = self._told

    def look(self, snapshot: Snapshot, may_lend: bool) -> Plan:
        """Decide and act. `may_lend` False: loans end."""
        if snapshot.settings is not self._settings:
            self._settings = snapshot.settings
            priority_type = self._settings.config.get("PriorityType", "")
            self._how.is_basic = priority_type == "priority/basic"
            self._broker.read(self._settings.config)
        made = self._plan(snapshot, may_lend and self._broker.is_open)
        self._reserved.keep(made.reserved | self._offered(made))
        self._act(made, snapshot.jobs)
        return made

    def close(self) -> None:
        """End what runs beside the engine."""
        self._broker.close()

    def counts(self) -> Mapping[str, int]:
        """What `gputopo status` shows."""
        return dict(self._broker.lending.counts)

    def _plan(self, snapshot: Snapshot, lends: bool) -> Plan:
        now, queue = int(self._clock()), snapshot.jobs
        pending = [job for job in queue if job.state == "PENDING"]
        self._how.now = now
        # Of donors it is our own doing: counted, each loan would raise the next one's.
        others = (job.priority for job in pending if not loans.parent_of(job))
        self._how.highest = max(others, default=0)
        ready_s = self._how.ready_s if lends else None
        terms = Terms(now, snapshot.settings.tiers, self._grace_s, ready_s, self._refused)
        running = [job for job in queue if job.state != "PENDING"]
        if lends:
            self._broker.look(queue)
        there = nodes_of(snapshot.nodes, running)
        return look.plan(queue, there, terms, self._how, self._broker if lends else None)

    def _offered(self, made: Plan) -> dict[int, Kept]:
        """What is kept for loans whose donors have no ids yet."""
        found = {}
        for job, _, offered in made.offers:
            # No job has a negative id: these stand for the donors.
            lenders = enumerate(offered.offer.donors.items(), 1)
            nobody = tuple(LoanDonor(node, mask, -i) for i, (node, mask) in lenders)
            loan = Loan(offered.offer.host, offered.offer.mask, nobody)
            found[job.job_id] = self._kept(job.job_id, loan)
        return found

    def _kept(self, job_id: int, loan: Loan) -> Kept:
        until = self._clock() + self._how.ready_s + REQUEUED_S
        return Kept(look.shares_of(job_id, loan), until)

    def _told(self, job_id: int, loan: Loan) -> None:
        """Donors have their ids, and start in a moment."""
        self._reserved.add(job_id, self._kept(job_id, loan))

    def _act(self, made: Plan, queue: Sequence[QueuedJob]) -> None:
        """Starts first: they are what people wait for; then ends, then new loans."""
        for job, update in made.starts:
            self._update(job, (update,))
        for job, updates in made.back:
            self._update(job, updates)
        now = self._clock()
        refused = self._broker.act(made, queue)
        for job, _, _ in made.offers:
            if job.name in refused:
                self._reserved.drop(job.job_id)
        self._refused = {name: until for name, until in self._refused.items() if until > now}
        self._refused |= dict.fromkeys(refused, now + REFUSED_S)

    def _update(self, job: QueuedJob, updates: Sequence[JobUpdate]) -> None:
        """One after the other; where one is refused, none follows: the next look knows."""
        try:
            for update in updates:
                self._client.update([job.name], update)
        except SlurmError as error:
            logger.warning("remote: job %s: %s", job.name, error)
