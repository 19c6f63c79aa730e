"""Carries out what the plan of one snapshot says about loans; runs in a thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from slurm_plugin.act.lending import standing as loans
from slurm_plugin.act.lending.at_start import planning
from slurm_plugin.act.lending.at_start.planning import REQUEUED_S, StartPlan
from slurm_plugin.act.lending.at_start.reservations import LoanReservation, LoanReservations
from slurm_plugin.act.lending.at_start.start_loans import StartLoans
from slurm_plugin.act.lending.matcher import LoanMatcher
from slurm_plugin.act.lending.plan import LoanContext
from slurm_plugin.base.job_notes.loan import Loan, LoanDonor
from slurm_plugin.base.job_notes.records import LoanRecord
from slurm_plugin.base.telemetry import Telemetry
from slurm_plugin.errors import SlurmError
from slurm_plugin.queue.backoff import Backoff
from slurm_plugin.queue.capacity import nodes_of
from slurm_plugin.queue.snapshot import Snapshot
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob

logger = logging.getLogger(__name__)

#: Seconds until a loan that Slurm refused is tried again.
REFUSED_S = 30.0


@dataclass(slots=True)
class LoanReconciler:
    """One snapshot after the other of one Slurm. Not for two threads at once."""

    client: SlurmClient
    matcher: LoanMatcher
    updates: StartLoans
    reservations: LoanReservations
    #: How long Slurm may take to start a job whose donors are ready, in seconds.
    grace_s: int
    clock: Callable[[], float] = time.time
    telemetry: Telemetry = field(default_factory=Telemetry)
    _backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        """Donors get their GPUs reserved before they start."""
        self.matcher.lending.on_named = self._reserve

    def reconcile(self, snapshot: Snapshot, may_lend: bool) -> StartPlan:
        """Decide and act. `may_lend` False: loans end."""
        priority_type = snapshot.settings.config.get("PriorityType", "")
        self.updates.is_basic = priority_type == "priority/basic"
        made = self._plan(snapshot, self.matcher.refresh(snapshot) and may_lend)
        self.reservations.by_borrower = made.reserved | self._planned(made)
        self._act(made, snapshot.jobs)
        return made

    def _plan(self, snapshot: Snapshot, lends: bool) -> StartPlan:
        now, queue = int(self.clock()), snapshot.jobs
        pending = [job for job in queue if job.state == "PENDING"]
        self.updates.now = now
        # Without donors: their priority is our own doing, and each loan would raise the next one's.
        others = (job.priority for job in pending if not loans.parent_of(job))
        self.updates.highest = max(others, default=0)
        ready_s = self.updates.ready_s if lends else None
        context = LoanContext(
            now, snapshot.settings.tiers, self.grace_s, ready_s, self._backoff.is_paused
        )
        running = [job for job in queue if job.state != "PENDING"]
        nodes = nodes_of(snapshot.nodes, running, partitions=snapshot.settings.partitions)
        return planning.plan(queue, nodes, context, self.updates, self.matcher if lends else None)

    def _planned(self, made: StartPlan) -> dict[int, LoanReservation]:
        """What is reserved for loans whose donors have no ids yet."""
        reserved = {}
        for job, _, offer in made.offers:
            # No job has a negative id: these stand for the donors.
            donors = enumerate(offer.donors.items(), 1)
            unnamed = tuple(LoanDonor(node, mask, -i) for i, (node, mask) in donors)
            loan = Loan(offer.host, offer.mask, unnamed)
            reserved[job.job_id] = self._reservation(job.job_id, loan)
        return reserved

    def _reservation(self, job_id: int, loan: Loan) -> LoanReservation:
        until = self.clock() + self.updates.ready_s + REQUEUED_S
        return LoanReservation(planning.shares_of(job_id, loan), until)

    def _reserve(self, job_id: int, loan: Loan) -> None:
        """Donors have their ids, and start in a moment."""
        before = self.reservations.by_borrower
        self.reservations.by_borrower = {**before, job_id: self._reservation(job_id, loan)}

    def _act(self, made: StartPlan, queue: Sequence[QueuedJob]) -> None:
        """Starts first: they are what people wait for; then ends, then new loans."""
        changes = [*((job, (update,)) for job, update in made.starts), *made.back]
        held = self._held_since(job for job, _ in changes) if changes else set()
        starting = {job.job_id for job, _ in made.starts}
        for job, updates in changes:
            is_done = job.job_id not in held and self._update(job, updates)
            record = LoanRecord.read_from(job.admin_comment)
            if is_done and job.job_id in starting and record is not None:
                self.telemetry.loan_setups.add(self.clock() - record.loan_made_at)
        now = self.clock()
        refused = self.matcher.act(made, queue)
        gone = {job.job_id for job, _, _ in made.offers if job.name in refused}
        before = self.reservations.by_borrower
        self.reservations.by_borrower = {
            job_id: one for job_id, one in before.items() if job_id not in gone
        }
        self._backoff.forget(now)
        self._backoff.pause(refused, now, REFUSED_S)

    def _held_since(self, jobs: Iterable[QueuedJob]) -> set[int]:
        """The jobs that somebody held after the snapshot; they must not be updated now.

        Our updates set a priority, which Slurm takes as a release. The next poll sees them held.
        """
        free = {job.job_id for job in jobs if not job.held}
        try:
            return free & {job.job_id for job in self.client.queue() if job.held}
        except SlurmError as error:
            logger.warning("remote: %s", error)
            return free

    def _update(self, job: QueuedJob, updates: Sequence[JobUpdate]) -> bool:
        """Send updates in order until Slurm refuses one; whether it took all of them."""
        try:
            for update in updates:
                self.client.update([job.name], update)
        except SlurmError as error:
            logger.warning("remote: job %s: %s", job.name, error)
            return False
        return True
