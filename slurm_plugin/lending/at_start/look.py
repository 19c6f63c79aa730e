"""One look at the queue: loans that go on, start or come to nothing, and new ones.

Pure: a snapshot and the time in, a plan out. Slurm itself starts every other job, so what fits
now counts as taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurm_plugin.job_notes.loan import Loan
from slurm_plugin.job_notes.records import MAY, MEETS, REQUESTS, STARTS, LoanRecord
from slurm_plugin.lending import loan as loans
from slurm_plugin.lending.askers import Askers, Lends
from slurm_plugin.lending.at_start import mode
from slurm_plugin.lending.at_start.mode import AtStart
from slurm_plugin.lending.at_start.reserved import Kept, Share
from slurm_plugin.lending.borrowing import Candidate
from slurm_plugin.lending.plan import LoanPlan
from slurm_plugin.queue import demand
from slurm_plugin.queue.candidates import first_hold
from slurm_plugin.queue.capacity import Hold, Nodes, end_of, held_by
from slurm_plugin.queue.features import Unsupported
from slurm_plugin.queue.order import in_order
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob

#: Reasons with which a job lacks nothing but GPUs, CPUs or memory.
READY = frozenset(("", "None", "Resources", "Priority", "Cleaning"))
#: A job put back by Slurm has a begin time so far away at least.
REQUEUED_S = 5


@dataclass(frozen=True, slots=True)
class Terms:
    """The time (epoch), the partitions' PriorityTier, and how long a reduced job may take to start.

    `ready_s` is how long donors may take; None: nothing is lent any more. `paused` says of jobs
    until when not to try again: Slurm refused their loan.
    """

    now: int
    tiers: Mapping[str, int] = field(default_factory=dict)
    grace_s: int = 30
    ready_s: int | None = 60
    paused: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Plan(LoanPlan):
    """What to do: `starts` and `back` are updates of jobs that start, or were put back by Slurm.

    `reserved` is what is kept for loans under way, by the borrower's id. `is_ours`: there are
    donors, or jobs with a loan.
    """

    starts: list[tuple[QueuedJob, JobUpdate]] = field(default_factory=list)
    back: list[tuple[QueuedJob, tuple[JobUpdate, ...]]] = field(default_factory=list)
    reserved: dict[int, Kept] = field(default_factory=dict)
    is_ours: bool = False

    @property
    def changes_slurm(self) -> bool:
        """Is anything to be done?"""
        return bool(self.starts or self.back or self.offers or self.broken or self.declined)

    @property
    def is_busy(self) -> bool:
        """Is there a loan that is not settled yet?"""
        return bool(self.reserved or self.offers or self.starts or self.back or self.broken)


def plan(
    queue: Sequence[QueuedJob], nodes: Nodes, terms: Terms, how: AtStart, lends: Lends | None
) -> Plan:
    """Everything to be done now; `nodes` is by Slurm's own figures."""
    running = [job for job in queue if job.state != "PENDING"]
    made = Plan(nodes, [held_by(job, terms.now) for job in running])
    made.is_ours = any(loans.parent_of(job) or _has_loan(job) for job in queue)
    look = _Look(made, terms, how, {job.job_id: job for job in queue}, lends)
    waiting = []
    pending = [job for job in queue if job.state == "PENDING"]
    for job in in_order(pending, terms.tiers):
        kept = LoanRecord.read_from(job.admin_comment)
        if kept is not None and kept.state != MAY:
            look.at_loan(job, kept)
        elif _asks_for_gpus(job):
            waiting.append((job, kept))
    for job, kept in waiting:
        look.at_waiting(job, kept)
    look.askers.settle()
    return made


def _asks_for_gpus(job: QueuedJob) -> bool:
    """Is this a job of somebody's own that waits for GPUs?"""
    if loans.parent_of(job):
        return False
    return any("gpu" in getattr(job, field) for field in REQUESTS.values())


def _has_loan(job: QueuedJob) -> bool:
    kept = LoanRecord.read_from(job.admin_comment)
    return kept is not None and kept.names_loan


def shares_of(job_id: int, loan: Loan, why: str = "") -> dict[int, Share]:
    """What is kept for a loan's jobs before any of them runs."""
    local = {job_id: Share(loan.host, loan.mask, loan.note(why))}
    note = f"lends to job {job_id}"
    return local | {one.job_id: Share(one.node, one.mask, note) for one in loan.donors}


class _Look:
    """The state of one plan in the making."""

    def __init__(
        self,
        made: Plan,
        terms: Terms,
        how: AtStart,
        there: Mapping[int, QueuedJob],
        lends: Lends | None,
    ) -> None:
        self._made = made
        self._terms = terms
        self._how = how
        self._there = there
        self.askers = Askers(made, lends, terms.now)

    def at_loan(self, job: QueuedJob, kept: LoanRecord) -> None:
        """A job with a loan: it goes on, starts, or is given up."""
        made, now = self._made, self._terms.now
        loan = kept.loan
        if kept.state == STARTS and (job.eligible > now + REQUEUED_S or loan is None):
            # It ran, and asks for all of its GPUs again.
            made.back.append((job, self._how.given_up(job, kept, "starts anew")))
            return
        why = self._in_the_way(job, kept, loan)
        if why or loan is None:
            made.broken.append((job, kept, why or "the loan cannot be read"))
            return
        end = end_of(job, self._terms.now)
        made.take(self._local(job, loan, end))
        self._keep(job, kept, loan, end)
        found = loans.standing(job, loan, self._there)
        if kept.state == MEETS and found.is_ready:
            update = self._how.starts(job, kept, loan.with_ports(found.ports))
            made.starts.append((job, update))

    def _in_the_way(self, job: QueuedJob, kept: LoanRecord, loan: Loan | None) -> str:
        terms, room_now, at = self._terms, self._made.room, kept.loan_made_at
        if kept.state == MEETS:
            if not mode.is_whole(job, kept) or job.req_nodes:
                return "its request was changed"
            return loans.obstacle(job, loan, at, room_now, self._there, terms.now, terms.ready_s)
        if not mode.is_local(job, kept):
            return "its request was changed"
        if abs(terms.now - kept.at) > terms.grace_s:
            return f"not started by Slurm ({job.reason})"
        # GPUs in use may be its own already: the nodes were read after the queue.
        return loans.obstacle(job, loan, at, None, self._there, terms.now, terms.ready_s)

    def _local(self, job: QueuedJob, loan: Loan, end: float) -> Hold:
        memory = job.memory_per_node_mb or job.memory_per_cpu_mb * job.cpus
        return Hold({loan.host: loan.mask}, job.cpus, memory, end)

    def _keep(self, job: QueuedJob, kept: LoanRecord, loan: Loan, end: float) -> None:
        """Hold for its jobs what they do not hold by themselves yet."""
        shares = shares_of(job.job_id, loan, kept.loan_reason)
        for lender in loan.donors:
            donor = self._there[lender.job_id]
            if donor.state == "PENDING":
                self._made.take(loans.donors_hold(lender, donor, end))
            else:
                del shares[lender.job_id]
        self._made.reserved[job.job_id] = Kept(shares, self.until(kept))

    def until(self, kept: LoanRecord) -> float:
        """The end of what is kept for a loan, whatever happens."""
        since = kept.at or kept.loan_made_at
        most = self._terms.grace_s if kept.state == STARTS else self._terms.ready_s or 0
        return float(since + most + REQUEUED_S)

    def at_waiting(self, job: QueuedJob, kept: LoanRecord | None) -> None:
        """A job without a loan: about to start, or waiting, or to be lent to."""
        made = self._made
        if job.held or job.depends or job.reason not in READY:
            return
        try:
            asked = demand.demand_of(job)
            need = demand.need_of(asked, made.room)
            hold = first_hold(need, made.room, end_of(job, self._terms.now))
        except (demand.Unplaceable, Unsupported, ValueError):
            return
        if len(asked.types) > 1:
            # A node with several GPU models is not looked at.
            return
        if hold is not None:
            made.take(hold)
            return
        self.askers.no_room(job.job_id, need)
        is_paused = self._terms.paused.get(job.name, 0) > self._terms.now
        # Without -N1 Slurm itself spreads GPUs that are counted for the whole job.
        is_spread = bool(job.tres_per_job) and job.max_nodes != 1
        if kept is not None and not (job.array_id or job.het_id or is_paused or is_spread):
            self.askers.ask(Candidate(job, kept, asked, need))
