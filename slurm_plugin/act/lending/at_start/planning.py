"""What one snapshot of the queue leads to: loans that go on, start or are broken; new ones.

Pure. Slurm itself starts every other job, so what fits now counts as taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gres_topology.features import Unsupported
from slurm_plugin.act.lending import forms
from slurm_plugin.act.lending import standing as loans
from slurm_plugin.act.lending.admission import LoanAdmission
from slurm_plugin.act.lending.at_start import start_loans
from slurm_plugin.act.lending.at_start.reservations import LoanReservation
from slurm_plugin.act.lending.at_start.start_loans import StartLoans
from slurm_plugin.act.lending.choice.offer import Refusal
from slurm_plugin.act.lending.matcher import LoanMatcher
from slurm_plugin.act.lending.plan import LoanCandidate, LoanContext, LoanPlan
from slurm_plugin.act.lending.standing import Standing
from slurm_plugin.base.job_notes.loan import Loan
from slurm_plugin.base.job_notes.records import MAY, MEETS, STARTS, LoanRecord
from slurm_plugin.base.protocol import Use
from slurm_plugin.queue import demand
from slurm_plugin.queue.backfill import in_order
from slurm_plugin.queue.capacity import Hold, Nodes, end_of, holds_in
from slurm_plugin.queue.slurms_choice import first_hold
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob

#: A job that Slurm requeued has a begin time at least this many seconds away.
REQUEUED_S = 5


@dataclass(slots=True)
class StartPlan(LoanPlan):
    """What is to be done about loans."""

    #: The updates that let jobs start whose donors are ready.
    starts: list[tuple[QueuedJob, JobUpdate]] = field(default_factory=list)
    #: The updates of jobs that ran and were requeued by Slurm.
    back: list[tuple[QueuedJob, tuple[JobUpdate, ...]]] = field(default_factory=list)
    #: What is reserved for loans under way, by the borrower's id.
    reserved: dict[int, LoanReservation] = field(default_factory=dict)
    #: Are there donors, or jobs with a loan?
    is_ours: bool = False

    @property
    def changes_slurm(self) -> bool:
        """Is anything to be done?"""
        lends = self.offers or self.splits or self.broken or self.refusals
        return bool(self.starts or self.back or lends)

    @property
    def lets_start(self) -> bool:
        """Is a donor or a borrower let go, so that Slurm may look at its queue at once?"""
        return bool(self.starts or self.offers)

    @property
    def is_busy(self) -> bool:
        """Is there a loan that is not settled yet?"""
        return bool(self.reserved or self.offers or self.starts or self.back or self.broken)


def plan(
    queue: Sequence[QueuedJob],
    nodes: Nodes,
    context: LoanContext,
    updates: StartLoans,
    matcher: LoanMatcher | None,
) -> StartPlan:
    """Everything to be done now; `nodes` is by Slurm's own figures."""
    made = StartPlan(nodes, holds_in(nodes, queue, context.now))
    made.is_ours = any(loans.parent_of(job) or _has_loan(job) for job in queue)
    by_id = {job.job_id: job for job in queue}
    admission = LoanAdmission(made, matcher, context.now)
    planning = _Planning(made, context, updates, by_id, admission)
    waiting = []
    pending = [job for job in queue if job.state == "PENDING"]
    for job in in_order(pending, context.tiers):
        record = LoanRecord.read_from(job.admin_comment)
        if record is not None and record.state != MAY:
            planning.at_loan(job, record)
        elif not loans.parent_of(job) and any("gpu" in text for text in job.requests):
            waiting.append((job, record))
            if job.tasks == 1:
                planning.split.add(job.array_id)
    for job, record in waiting:
        planning.at_waiting(job, record)
    planning.admission.settle()
    return made


def _has_loan(job: QueuedJob) -> bool:
    record = LoanRecord.read_from(job.admin_comment)
    return record is not None and record.names_loan


def shares_of(job_id: int, loan: Loan, why: str = "") -> dict[int, Use]:
    """What is reserved for a loan's jobs before any of them runs."""
    local = {job_id: Use({loan.host: loan.mask}, note=loan.note(why))}
    note = f"lends to job {job_id}"
    return local | {one.job_id: Use({one.node: one.mask}, note=note) for one in loan.donors}


@dataclass(slots=True)
class _Planning:
    """The state of one plan in the making; `jobs` are all of the queue, by id."""

    made: StartPlan
    context: LoanContext
    updates: StartLoans
    jobs: Mapping[int, QueuedJob]
    admission: LoanAdmission
    #: The arrays of which a task waits by itself, without a loan.
    split: set[int] = field(default_factory=set)

    def at_loan(self, job: QueuedJob, record: LoanRecord) -> None:
        """A job with a loan: it goes on, starts, or is given up."""
        made, now = self.made, self.context.now
        loan = record.loan
        if record.state == STARTS and (job.eligible > now + REQUEUED_S or loan is None):
            # It ran, and asks for all of its GPUs again, when Slurm lets it: a node that did not
            # answer its start may still refuse it, which would end it wherever it runs by then.
            updates = self.updates.given_up(job, record, "starts anew", begin=None)
            made.back.append((job, updates))
            return
        state = self._standing(job, record)
        if state.trouble or loan is None:
            made.broken.append((job, record, state.trouble))
            return
        end = end_of(job, now)
        cpus, memory = start_loans.cpus_and_memory_mb(job, record)
        made.take(Hold({loan.host: loan.mask}, cpus, memory, end))
        self._reserve(job, record, loan, end)
        if record.state == MEETS and state.ports:
            update = self.updates.starts(job, record, loan.with_ports(state.ports))
            made.starts.append((job, update))

    def _standing(self, job: QueuedJob, record: LoanRecord) -> Standing:
        context = self.context
        nodes: Nodes | None = self.made.nodes
        is_ours = start_loans.is_whole(job, record)
        if record.state == STARTS:
            # GPUs in use may be its own already: the nodes were read after the queue.
            nodes, is_ours = None, start_loans.is_local(job, record)
        if not is_ours:
            return Standing({}, "its request was changed")
        if record.state == STARTS and abs(context.now - record.at) > context.grace_s:
            return Standing({}, f"not started by Slurm ({job.reason})")
        return loans.standing(job, record, nodes, self.jobs, context)

    def _reserve(self, job: QueuedJob, record: LoanRecord, loan: Loan, end: float) -> None:
        """Reserve for the jobs of a loan what they do not hold themselves yet."""
        shares = shares_of(job.job_id, loan, record.loan_reason)
        for share in loan.donors:
            donor = self.jobs[share.job_id]
            if donor.state == "PENDING":
                self.made.take(loans.donors_hold(share, donor, end))
            else:
                del shares[share.job_id]
        # The reservation ends at this time, whatever happens.
        since = record.at or record.loan_made_at
        most = self.context.grace_s if record.state == STARTS else self.context.ready_s or 0
        until = float(since + most + REQUEUED_S)
        self.made.reserved[job.job_id] = LoanReservation(shares, until)

    def at_waiting(self, job: QueuedJob, record: LoanRecord | None) -> None:
        """A job without a loan: about to start, or waiting, or to be lent to."""
        made = self.made
        if not demand.waits_for_room(job, self.context.now):
            return
        try:
            asked = demand.demand_of(job)
        except (demand.Unplaceable, Unsupported, ValueError):
            return
        try:
            need = demand.need_of(asked, made.nodes)
            hold = first_hold(need, made.nodes, end_of(job, self.context.now))
        except (demand.Unplaceable, Unsupported, ValueError):
            if record is not None and asked.form == "socket":
                # Slurm's record does not tell how many sockets, so its room is not known here.
                refusal = Refusal(forms.line(forms.PER_SOCKET), by_choice=True)
                made.refuse(job, record, refusal)
            return
        if len(asked.types) > 1:
            # Only nodes of one GPU model are looked at: it fits on none of them.
            return
        if hold is not None:
            made.take(hold)
            return
        self.admission.fits_nowhere(job, need)
        is_paused = self.context.is_paused(job.name, self.context.now)
        # One task after the other: the next one is split off when this one has its loan.
        is_split = job.tasks > 1 and job.array_id in self.split
        if record is not None and not (is_paused or is_split):
            why = forms.obstacle(asked, is_het=bool(job.het_id))
            self.admission.ask(LoanCandidate(job, record, need, why))
