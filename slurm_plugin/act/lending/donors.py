"""Donors in Slurm: jobs of the borrowing job's own user, which end with that job.

A donor is submitted without GPUs and with a begin time far away. Then the borrower's AdminComment
names it, and only then it gets its GPUs and may start. If the engine dies in between, at most a
donor is left that no borrower names; the next poll cancels it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from slurm_plugin.act.lending import standing as loans
from slurm_plugin.act.lending.acting.question import Question, Submitter
from slurm_plugin.act.lending.choice.offer import Offer, Refusal
from slurm_plugin.act.lending.ledger import Ledger
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.loan import Loan, LoanDonor
from slurm_plugin.base.job_notes.records import JobRecord
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.config.sections import SlurmConfig
from slurm_plugin.errors import SlurmError
from slurm_plugin.queue.capacity import Node, Nodes
from slurm_plugin.queue.slow_users import SlowUsers
from slurm_plugin.slurm.array_tasks import task_runs
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob
from slurm_plugin.slurm.runner import ProcessRunner, Runner

logger = logging.getLogger(__name__)

#: A running job has lost a donor when this many polls in a row do not see the donor run.
MISSED_POLLS = 2
#: The pause before another loan is tried for a job, doubled each time.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 30, 900
#: Seconds that the process which submits donors gets beyond the time of Slurm's commands.
PATIENCE_S = 5.0
#: A donor that takes longer to submit counts as late: its user's programs may be stopped.
PROMPT_S = 2.0


class LoanUpdates(Protocol):
    """What one way of enforcing tells Slurm about loans. Pure.

    Every `record` is of this way's own kind.
    """

    @property
    def kind(self) -> type[JobRecord]:
        """The kind of record that a job has, with or without a loan."""
        ...

    def is_on_loan(self, job: QueuedJob, record: Any) -> bool:
        """Does a job in this state need the donors that it names?"""
        ...

    def meets(self, job: QueuedJob, record: Any, note: str) -> JobUpdate:
        """The update that names the donors in `record` before they start."""
        ...

    def donor(self, parent: int, node: Node, mask: int) -> JobUpdate:
        """The update that gives a donor its GPUs, and lets it start."""
        ...

    def given_up(self, job: QueuedJob, record: Any, note: str) -> Sequence[JobUpdate]:
        """The updates, in this order, that leave the job without the loan that `record` names.

        Once Slurm refuses one of them, the rest is not sent.
        """
        ...


@dataclass
class SlurmLoans:
    """Makes loans in Slurm, looks after them and ends them; used by one thread at a time."""

    settings: RemoteConfig
    client: SlurmClient
    run: Runner
    submitter: Submitter
    updates: LoanUpdates
    clock: Callable[[], float] = time.time
    #: Called with the borrower's id and its loan before the first donor may start.
    on_named: Callable[[int, Loan], object] = lambda job_id, loan: None
    #: Raises SlurmError where Slurm is not to be changed from here.
    check: Callable[[], None] = lambda: None
    counts: Counter[str] = field(default_factory=Counter)
    #: Others wait while a donor is submitted, which its user can make last.
    slow: SlowUsers = field(
        default_factory=lambda: SlowUsers("donors for jobs", "nothing is lent to them")
    )
    ledger: Ledger = field(init=False)
    # Polls in a row that did not see all donors of a running job, by its id.
    _missed: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """The ledger asks the same Slurm."""
        self.ledger = Ledger(self.run)

    def obstacle(self, slurm_config: Mapping[str, str]) -> str:
        """Why nothing can be lent here, by Slurm's settings or our own; '' where it can."""
        if not slurm_config.get("TaskProlog"):
            return "slurm.conf has no TaskProlog, so no job could meet its donors"
        return self.submitter.obstacle()

    def lend(self, job: QueuedJob, record: JobRecord, offer: Offer, nodes: Nodes) -> Loan | None:
        """Submit a loan's donors and record it. None where one fails; then all of it is undone."""
        donors: list[LoanDonor] = []
        try:
            for node, mask in offer.donors.items():
                donors.append(self._submitted(job, node, mask))
            loan = Loan(offer.host, offer.mask, tuple(donors))
            named = record.with_loan(loan, int(self.clock()), offer.why)
            note = f"meets its donors: {loan.note(offer.why)}"
            self.client.update([job.name], self.updates.meets(job, named, note))
            self.on_named(job.job_id, loan)
            for donor in donors:
                change = self.updates.donor(job.job_id, nodes[donor.node], donor.mask)
                self.client.update([str(donor.job_id)], change)
        except SlurmError as error:
            logger.warning("job %s cannot borrow: %s", job.name, error)
            self.cancel([str(donor.job_id) for donor in donors])
            self.counts["refused"] += 1
            return None
        self.counts["lent"] += 1
        return loan

    def _submitted(self, job: QueuedJob, node: str, mask: int) -> LoanDonor:
        """Submit a donor that waits. SlurmError where the id from the user's sbatch is wrong."""
        self.check()
        if self.slow.is_one(job.uid):
            raise SlurmError("donors of this user take too long to submit")
        asked = Question(job.job_id, job.uid, node, mask.bit_count())
        began = time.monotonic()
        try:
            donor = LoanDonor(node, mask, self.submitter.donor(asked))
        finally:
            if (took_s := time.monotonic() - began) > PROMPT_S:
                self.slow.late(job.uid, took_s)
        there = {one.job_id: one for one in self.client.queue()}
        if trouble := loans.trouble_of(donor, there.get(donor.job_id), job):
            raise SlurmError(trouble)
        return donor

    def split(self, job: QueuedJob) -> None:
        """Make the first task of an array a job of its own; nothing else about it changes."""
        name = f"{job.array_id}_{task_runs(job.task)[0][0]}"
        try:
            self.client.update([name], JobUpdate(admin_comment=job.admin_comment))
        except SlurmError as error:
            logger.warning("job %s: %s", name, error)

    def record_of(self, job: QueuedJob) -> JobRecord | None:
        """The job's record where that may name a loan."""
        comment = job.admin_comment
        return self.updates.kind.read_from(comment) if "loan=" in comment else None

    def tidy(self, queue: Sequence[QueuedJob]) -> None:
        """End donors whose borrower is no more, and borrowers that lost a donor."""
        there = {job.job_id: job for job in queue}
        wanted: set[int] = set()
        borrowers: set[int] = set()
        for job in queue:
            record = self.record_of(job)
            loan = record.loan if record else None
            if record is None or loan is None or not self.updates.is_on_loan(job, record):
                continue
            if job.state != "PENDING":
                borrowers.add(job.job_id)
                self._look_after(job, loan, there)
            wanted.update(donor.job_id for donor in _donors(job, loan, there))
        for job_id in [job_id for job_id in self._missed if job_id not in borrowers]:
            del self._missed[job_id]
        donors = [job for job in queue if loans.parent_of(job)]
        orphans = [
            job
            for job in donors
            if job.job_id not in wanted
            and job.state != "COMPLETING"
            and not self._is_in_doubt(job, there)
        ]
        # A donor that runs is asked first: it says what passed, and ends by itself.
        asked = [job.name for job in orphans if job.state == "RUNNING" and self.ledger.asks(job)]
        self._send(["scancel", "--batch", "--signal=TERM"], asked)
        self.cancel([job.name for job in orphans if job.name not in asked])
        self.ledger.see(donors)

    def _is_in_doubt(self, donor: QueuedJob, there: Mapping[int, QueuedJob]) -> bool:
        """Do donor and borrower both run, with the borrower's record lost?

        Somebody overwrote AdminComment, and the engine's own store is gone. Such a donor is left
        alone: it ends by itself when the borrower ends.
        """
        borrower = there.get(loans.parent_of(donor))
        if borrower is None or not loans.lends_to(donor, borrower):
            return False
        has_record = self.updates.kind.read_from(borrower.admin_comment) is not None
        return donor.state == borrower.state == "RUNNING" and not has_record

    def _look_after(self, job: QueuedJob, loan: Loan, there: dict[int, QueuedJob]) -> None:
        """Put a running job that lost a donor back into the queue."""
        donors = _donors(job, loan, there)
        is_whole = len(donors) == len(loan.donors)
        if is_whole and all(donor.state == "RUNNING" for donor in donors):
            self._missed.pop(job.job_id, None)
            return
        self._missed[job.job_id] += 1
        if self._missed[job.job_id] < MISSED_POLLS:
            return
        logger.warning("job %s lost a donor and is put back into the queue", job.name)
        self.counts["lost"] += 1
        self._missed.pop(job.job_id, None)
        try:
            self.check()
            self.run(["scontrol", "requeue", job.name])
        except SlurmError as error:
            logger.warning("job %s cannot be put back (%s) and is cancelled", job.name, error)
            self.cancel([job.name])

    def refuse(self, job: QueuedJob, record: JobRecord, refusal: Refusal) -> bool:
        """Write into the job why nothing is lent to it; whether a new reason stands there.

        The record also keeps the time since which only the network holds the job back.
        """
        now = int(self.clock())
        changed = record.held_by_network(now) if refusal.is_network else record
        is_known = hints.has_note(job.admin_comment, refusal.why)
        if is_known and changed == record:
            return False
        comment = changed.written_into(job.admin_comment)
        noted = JobUpdate(admin_comment=hints.with_note(comment, refusal.why))
        try:
            self.client.update([job.name], noted)
        except SlurmError as error:
            # It is told once it stands there: until then each look finds the same again.
            logger.warning("job %s: %s", job.name, error)
            return False
        return not is_known

    def give_up(
        self, job: QueuedJob, record: JobRecord, why: str, queue: Mapping[int, QueuedJob]
    ) -> int:
        """End a loan that failed; with `unservable: refuse` cancel the job, too.

        Returns the seconds until the next try.
        """
        loan = record.loan
        # After ten doublings the pause is at its longest: no need for a huge power of two.
        pause_s: int = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(record.loan_tries, 10))
        paused = record.paused(int(self.clock()) + pause_s)
        is_refused = self.settings.unservable == "refuse"
        outcome = "refused" if is_refused else "waits for GPUs of one node"
        note = f"remote GPUs: {why}; {outcome}"
        self.counts["given_up"] += 1
        try:
            for update in self.updates.given_up(job, paused, note):
                self.client.update([job.name], update)
        except SlurmError as error:
            # It has started, or ended: the next poll will show.
            logger.warning("job %s: %s", job.name, error)
            return pause_s
        self.cancel([donor.name for donor in _donors(job, loan, queue)] if loan else [])
        if is_refused:
            self.cancel([job.name])
        return pause_s

    def take_back(self, job: QueuedJob, record: JobRecord, by: str) -> bool:
        """Requeue a running borrower for the job `by`; whether Slurm did.

        Its record says so first: whatever dies in between, it is never done twice. The donors are
        ended as those of any job that was put back.
        """
        note = f"its lent GPUs are taken back for job {by}; it is requeued"
        noted = record.changed(loan_taken=int(self.clock())).written_into(job.admin_comment)
        try:
            self.check()
            self.client.update([job.name], JobUpdate(admin_comment=hints.with_note(noted, note)))
            self.run(["scontrol", "requeue", job.name])
        except SlurmError as error:
            logger.warning("job %s is not requeued: %s", job.name, error)
            self.counts["not_taken_back"] += 1
            return False
        self.counts["taken_back"] += 1
        return True

    def cancel(self, names: Sequence[str]) -> None:
        """End jobs by what Slurm's commands call them; what has ended already is no error."""
        self.counts["cancelled"] += len(names)
        self._send(["scancel"], names)

    def _send(self, command: Sequence[str], names: Sequence[str]) -> None:
        if not names:
            return
        try:
            self.check()
            self.run([*command, *names])
        except SlurmError as error:
            logger.warning("donors %s: %s; tried again", list(names), error)


def _donors(job: QueuedJob, loan: Loan, queue: Mapping[int, QueuedJob]) -> list[QueuedJob]:
    """The jobs in the queue that are this loan's donors, whatever else it names."""
    named = (queue.get(donor.job_id) for donor in loan.donors)
    return [donor for donor in named if donor is not None and loans.lends_to(donor, job)]


def slurm_loans(
    settings: RemoteConfig,
    slurm: SlurmConfig,
    client: SlurmClient,
    updates: LoanUpdates,
    check: Callable[[], None],
) -> SlurmLoans:
    """Loans by Slurm's own commands; `check` raises SlurmError where none is to be given."""
    runner = ProcessRunner(slurm.bin_dir, slurm.timeout_s)
    # That process runs squeue before its sbatch: two commands of Slurm.
    submitter = Submitter(settings.submitter, 2 * slurm.timeout_s + PATIENCE_S)
    return SlurmLoans(settings, client, runner, submitter, updates, check=check)
