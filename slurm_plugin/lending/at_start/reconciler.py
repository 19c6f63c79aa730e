"""Carries out what the plan of one snapshot says about loans; runs in a thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from slurm_plugin.errors import SlurmError
from slurm_plugin.job_notes.loan import Loan, LoanDonor
from slurm_plugin.lending import standing as loans
from slurm_plugin.lending.at_start import planning
from slurm_plugin.lending.at_start.planning import REQUEUED_S, LoanContext, StartPlan
from slurm_plugin.lending.at_start.reservations import Reservation, Reservations
from slurm_plugin.lending.at_start.start_loans import StartLoans
from slurm_plugin.lending.matcher import LoanMatcher
from slurm_plugin.queue.capacity import nodes_of
from slurm_plugin.queue.snapshot import Settings, Snapshot
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob

logger = logging.getLogger(__name__)

#: A loan that Slurm refused is not tried again so soon.
REFUSED_S = 30.0


class LoanReconciler:
    """One snapshot after the other of one Slurm. Not for two threads at once."""

    def __init__(
        self,
        client: SlurmClient,
        matcher: LoanMatcher,
        updates: StartLoans,
        reservations: Reservations,
        grace_s: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._matcher = matcher
        self._updates = updates
        self._reservations = reservations
        self._grace_s = grace_s
        self._clock = clock
        self._settings: Settings | None = None
        self._refused: dict[str, float] = {}
        matcher.lending.on_named = self._reserve

    def look(self, snapshot: Snapshot, may_lend: bool) -> StartPlan:
        """Decide and act. `may_lend` False: loans end."""
        if snapshot.settings is not self._settings:
            self._settings = snapshot.settings
            priority_type = self._settings.config.get("PriorityType", "")
            self._updates.is_basic = priority_type == "priority/basic"
            self._matcher.read(self._settings.config)
        made = self._plan(snapshot, may_lend and self._matcher.is_open)
        self._reservations.keep(made.reserved | self._planned(made))
        self._act(made, snapshot.jobs)
        return made

    def counts(self) -> Mapping[str, int]:
        """What `gputopo status` shows."""
        return dict(self._matcher.lending.counts)

    def _plan(self, snapshot: Snapshot, lends: bool) -> StartPlan:
        now, queue = int(self._clock()), snapshot.jobs
        pending = [job for job in queue if job.state == "PENDING"]
        self._updates.now = now
        # The priority of donors is our own doing: with them each loan would raise the next one's.
        others = (job.priority for job in pending if not loans.parent_of(job))
        self._updates.highest = max(others, default=0)
        ready_s = self._updates.ready_s if lends else None
        context = LoanContext(now, snapshot.settings.tiers, self._grace_s, ready_s, self._refused)
        running = [job for job in queue if job.state != "PENDING"]
        if lends:
            self._matcher.watch_network(queue)
        nodes = nodes_of(snapshot.nodes, running)
        return planning.plan(queue, nodes, context, self._updates, self._matcher if lends else None)

    def _planned(self, made: StartPlan) -> dict[int, Reservation]:
        """What is reserved for loans whose donors have no ids yet."""
        reserved = {}
        for job, _, offer in made.offers:
            # No job has a negative id: these stand for the donors.
            donors = enumerate(offer.donors.items(), 1)
            unnamed = tuple(LoanDonor(node, mask, -i) for i, (node, mask) in donors)
            loan = Loan(offer.host, offer.mask, unnamed)
            reserved[job.job_id] = self._reservation(job.job_id, loan)
        return reserved

    def _reservation(self, job_id: int, loan: Loan) -> Reservation:
        until = self._clock() + self._updates.ready_s + REQUEUED_S
        return Reservation(planning.shares_of(job_id, loan), until)

    def _reserve(self, job_id: int, loan: Loan) -> None:
        """Donors have their ids, and start in a moment."""
        self._reservations.add(job_id, self._reservation(job_id, loan))

    def _act(self, made: StartPlan, queue: Sequence[QueuedJob]) -> None:
        """Starts first: they are what people wait for; then ends, then new loans."""
        for job, update in made.starts:
            self._update(job, (update,))
        for job, updates in made.back:
            self._update(job, updates)
        now = self._clock()
        refused = self._matcher.act(made, queue)
        for job, _, _ in made.offers:
            if job.name in refused:
                self._reservations.drop(job.job_id)
        self._refused = {name: until for name, until in self._refused.items() if until > now}
        self._refused |= dict.fromkeys(refused, now + REFUSED_S)

    def _update(self, job: QueuedJob, updates: Sequence[JobUpdate]) -> None:
        """One after the other; where one is refused, none follows: the next look knows."""
        try:
            for update in updates:
                self._client.update([job.name], update)
        except SlurmError as error:
            logger.warning("remote: job %s: %s", job.name, error)
