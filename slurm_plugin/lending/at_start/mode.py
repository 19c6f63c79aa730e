"""What Slurm is told of a loan where GPUs are chosen when a job starts; see LoanRecord."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slurm_plugin.job_notes import donor, hints
from slurm_plugin.job_notes.loan import Loan
from slurm_plugin.job_notes.records import MAY, STARTS, LoanRecord
from slurm_plugin.queue import demand
from slurm_plugin.queue.capacity import Node
from slurm_plugin.slurm.gres_text import counts
from slurm_plugin.slurm.interface import NOW, JobUpdate, QueuedJob

#: What a submit's reply sets beside the hint.
MARK = LoanRecord(MAY, {"remote": "1"}).text()
#: Longer than donors may take: the job's own request then starts by itself, engine or not.
GATE_S = 30
#: Slurm's highest priorities have a meaning of their own.
HIGHEST = 2**32 - 256


@dataclass(slots=True)
class AtStart:
    """As Mode says. `ready_s` is how long donors may take.

    Donors, and a job whose donors are ready, go before all other jobs of their partition: that
    these are not delayed was seen to. `highest` is the highest priority of a waiting job, and
    `is_basic` says that Slurm gives priorities by PriorityType=priority/basic: there a job's
    place, once lost, is only had again by its number.
    """

    ready_s: int
    highest: int = 0
    is_basic: bool = False
    now: int = 0

    def kept(self, job: QueuedJob) -> LoanRecord | None:
        """As Mode says."""
        return LoanRecord.read_from(job.admin_comment)

    def is_on_loan(self, job: QueuedJob, kept: LoanRecord) -> bool:
        """As Mode says: one whose begin time came first runs on local GPUs alone."""
        if job.state == "PENDING":
            return True
        return kept.state == STARTS and job.state != "COMPLETING"

    def meets(self, job: QueuedJob, kept: LoanRecord, note: str) -> JobUpdate:
        """As Mode says."""
        meets = kept.meets(job.tres_per_node, job.tres_per_job, job.priority)
        comment = _with(job, meets, note)
        return JobUpdate(begin_time=self.now + self.ready_s + GATE_S, admin_comment=comment)

    def donor(self, parent: int, node: Node, mask: int) -> JobUpdate:
        """As Mode says."""
        return JobUpdate(
            begin_time=NOW,
            tres_per_node=_gpus(node.model, mask.bit_count()),
            priority=self._first(),
            admin_comment=donor.entry(parent),
        )

    def starts(self, job: QueuedJob, kept: LoanRecord, loan: Loan) -> JobUpdate:
        """The update that lets a job start on its local GPUs, all donors being ready.

        CPUs are among it: by them Slurm refuses the whole update of a job that runs.
        """
        note = loan.note(kept.loan_reason)
        return JobUpdate(
            begin_time=NOW,
            tres_per_node=_local(kept, loan),
            tres_per_job="" if kept.per_job else None,
            req_nodes=loan.host,
            min_cpus=job.cpus or None,
            priority=self._first(),
            admin_comment=_with(job, kept.starts(loan, self.now), note),
        )

    def given_up(self, job: QueuedJob, kept: LoanRecord, note: str) -> tuple[JobUpdate, ...]:
        """As Mode says: first its own request, as long as it waits; then nothing of a loan.

        The loan stands until the request is the user's again: a job that started meanwhile has
        to meet its donors.
        """
        told = JobUpdate(begin_time=NOW, admin_comment=_with(job, kept.over(), note))
        if kept.state != STARTS:
            return (told,)
        back = JobUpdate(min_cpus=job.cpus or None)
        if is_local(job, kept):
            # Another request than ours is the user's, or an administrator's: it stays.
            per_node, per_job = kept.per_node, kept.per_job or None
            back = replace(back, tres_per_node=per_node, tres_per_job=per_job, req_nodes="")
        if self.is_basic:
            back = replace(back, priority=min(kept.priority, HIGHEST) or None)
        else:
            back = replace(back, is_released=not job.held or None)
        return back, told

    def _first(self) -> int:
        return min(self.highest + 1, HIGHEST)


def is_local(job: QueuedJob, kept: LoanRecord) -> bool:
    """Does the job ask for its local GPUs alone?"""
    loan = kept.loan
    if loan is None or (kept.per_job and job.tres_per_job):
        return False
    return same(job.tres_per_node, _local(kept, loan))


def is_whole(job: QueuedJob, kept: LoanRecord) -> bool:
    """Does the job ask for what it asked for before the loan?"""
    return same(job.tres_per_node, kept.per_node) and same(job.tres_per_job, kept.per_job)


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


def _local(kept: LoanRecord, loan: Loan) -> str:
    return local_request(kept.asked, loan.mask.bit_count())


def _gpus(model: str, count: int) -> str:
    return f"gpu:{model}:{count}" if model else f"gpu:{count}"


def _with(job: QueuedJob, kept: LoanRecord, note: str) -> str:
    return hints.with_note(kept.written_into(job.admin_comment), note)
