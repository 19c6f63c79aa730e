"""What Slurm is told about a loan where GPUs are chosen when a job starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from slurm_plugin.job_notes import donor, hints
from slurm_plugin.job_notes.loan import Loan
from slurm_plugin.job_notes.records import MAY, STARTS, LoanRecord
from slurm_plugin.queue import demand
from slurm_plugin.queue.capacity import Node
from slurm_plugin.slurm.gres_text import counts
from slurm_plugin.slurm.interface import NOW, JobUpdate, QueuedJob

#: What a submit's reply sets beside the hint.
MARK = LoanRecord(MAY, {"remote": "1"}).text()
#: A job with a loan begins this many seconds after its donors' time is over. If nobody changes
#: that, it then starts with its own request, even without an engine.
GATE_S = 30
#: Priorities above this one have special meanings in Slurm.
HIGHEST = 2**32 - 256


@dataclass(slots=True)
class StartLoans:
    """The updates of the select mode.

    Donors, and jobs whose donors are ready, go first in their partition. The plan has made sure
    that this delays nobody.
    """

    #: How long donors may take.
    ready_s: int
    #: The highest priority of a waiting job.
    highest: int = 0
    #: With priority/basic Slurm numbers jobs: only its old number brings back a job's place.
    is_basic: bool = False
    #: The time of the poll (epoch).
    now: int = 0
    kind: ClassVar = LoanRecord

    def is_on_loan(self, job: QueuedJob, record: LoanRecord) -> bool:
        """Does the job need its donors? If its begin time came first, it runs without them."""
        if job.state == "PENDING":
            return True
        return record.state == STARTS and job.state != "COMPLETING"

    def meets(self, job: QueuedJob, record: LoanRecord, note: str) -> JobUpdate:
        """A begin time far enough away keeps the job waiting while its donors start."""
        meets = record.meets(job.tres_per_node, job.tres_per_job, job.priority)
        comment = _with(job, meets, note)
        return JobUpdate(begin_time=self.now + self.ready_s + GATE_S, admin_comment=comment)

    def donor(self, parent: int, node: Node, mask: int) -> JobUpdate:
        """The donor starts now, on any GPUs of the model."""
        return JobUpdate(
            begin_time=NOW,
            tres_per_node=_gpus(node.model, mask.bit_count()),
            priority=self._first(),
            admin_comment=donor.entry(parent),
        )

    def starts(self, job: QueuedJob, record: LoanRecord, loan: Loan) -> JobUpdate:
        """The update that lets a job start on its local GPUs, all donors being ready.

        It always sets CPUs: Slurm refuses an update that sets them for a job that already runs.
        """
        note = loan.note(record.loan_reason)
        return JobUpdate(
            begin_time=NOW,
            tres_per_node=_local(record, loan),
            tres_per_job="" if record.requests.tres_per_job else None,
            req_nodes=loan.host,
            min_cpus=job.cpus or None,
            priority=self._first(),
            admin_comment=_with(job, record.starts(loan, self.now), note),
        )

    def given_up(self, job: QueuedJob, record: LoanRecord, note: str) -> tuple[JobUpdate, ...]:
        """The update that gives the job its own request back, then the one that ends the loan.

        Until the second one the record names the loan: a job that starts must meet its donors.
        """
        without_loan = JobUpdate(begin_time=NOW, admin_comment=_with(job, record.over(), note))
        if record.state != STARTS:
            return (without_loan,)
        back = JobUpdate(min_cpus=job.cpus or None)
        if is_local(job, record):
            # A request that is not ours was made by the user or an administrator, and stays.
            asked = record.requests
            back = replace(back, tres_per_node=asked.tres_per_node, req_nodes="")
            back = replace(back, tres_per_job=asked.tres_per_job or None)
        if job.held:
            # Any priority would release it.
            return back, without_loan
        if self.is_basic:
            back = replace(back, priority=min(record.priority, HIGHEST) or None)
        else:
            back = replace(back, is_released=True)
        return back, without_loan

    def _first(self) -> int:
        return min(self.highest + 1, HIGHEST)


def is_local(job: QueuedJob, record: LoanRecord) -> bool:
    """Does the job ask for its local GPUs alone?"""
    loan = record.loan
    if loan is None or (record.requests.tres_per_job and job.tres_per_job):
        return False
    return same(job.tres_per_node, _local(record, loan))


def is_whole(job: QueuedJob, record: LoanRecord) -> bool:
    """Does the job ask for what it asked for before the loan?"""
    by_node, by_job, *_ = record.requests
    return same(job.tres_per_node, by_node) and same(job.tres_per_job, by_job)


def same(one: str, other: str) -> bool:
    """Are these two requests the same GPUs?"""
    try:
        return counts(one) == counts(other)
    except ValueError:
        return one == other


def local_request(text: str, gpus: int) -> str:
    """The request `text` with so many GPUs of its type; what is no GPU stays."""
    model = next(iter(counts(text)), "")
    return ",".join(filter(None, (_gpus(model, gpus), demand.without_gpus(text))))


def _local(record: LoanRecord, loan: Loan) -> str:
    return local_request(record.asked, loan.mask.bit_count())


def _gpus(model: str, count: int) -> str:
    return f"gpu:{model}:{count}" if model else f"gpu:{count}"


def _with(job: QueuedJob, record: LoanRecord, note: str) -> str:
    return hints.with_note(record.written_into(job.admin_comment), note)
