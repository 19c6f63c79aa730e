"""What Slurm is told about a loan where GPUs are chosen when a job starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from slurm_plugin.base.job_notes import donor, hints
from slurm_plugin.base.job_notes.loan import Loan
from slurm_plugin.base.job_notes.records import MAY, STARTS, LoanRecord
from slurm_plugin.queue import demand
from slurm_plugin.queue.capacity import Node
from slurm_plugin.queue.demand import gpus_of
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
        per_gpu = gpus_of(job.cpus_per_tres)
        meets = record.meets(
            job.requests,
            job.priority,
            req=job.req_nodes,
            cpg=per_gpu,
            cpt=job.cpus_per_task if per_gpu else 0,
            mpg=gpus_of(job.memory_per_tres),
        )
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
        CPUs and memory that it asked for with each GPU are given for lent ones, too.
        """
        note = loan.note(record.loan_reason)
        asked = record.requests
        cpus, memory_mb = cpus_and_memory_mb(job, record)
        tasks = job.ntasks or 1
        is_each, has_memory = bool(record.cpus_per_gpu), bool(record.memory_per_gpu_mb)
        return JobUpdate(
            begin_time=NOW,
            tres_per_node=_local(record, loan),
            tres_per_job="" if asked.tres_per_job else None,
            tres_per_task="" if asked.tres_per_task else None,
            tres_bind="" if asked.tres_per_task else None,
            req_nodes=loan.host,
            min_cpus=cpus or None,
            cpus_per_tres="" if is_each else None,
            cpus_per_task=cpus // tasks if is_each and cpus % tasks == 0 else None,
            memory_per_tres="" if has_memory else None,
            memory_per_node_mb=memory_mb if has_memory else None,
            priority=self._first(),
            admin_comment=_with(job, record.starts(loan, self.now), note),
        )

    def given_up(
        self, job: QueuedJob, record: LoanRecord, note: str, begin: int | None = NOW
    ) -> tuple[JobUpdate, ...]:
        """The update that gives the job its own request back, then the one that ends the loan.

        Until the second one the record names the loan: a job that starts must meet its donors.
        `begin`: when it may start; None: when Slurm says.
        """
        without_loan = JobUpdate(begin_time=begin, admin_comment=_with(job, record.over(), note))
        if record.state != STARTS:
            return (without_loan,)
        back = JobUpdate(min_cpus=job.cpus or None)
        if is_local(job, record):
            # A request that is not ours was made by the user or an administrator, and stays.
            back = _own_request(record, back)
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


def cpus_and_memory_mb(job: QueuedJob, record: LoanRecord) -> tuple[int, int]:
    """The CPUs and the memory that the job has on its node, for all its GPUs, lent or not."""
    gpus = gpus_of(record.asked)
    cpus = max(job.cpus, record.cpus_per_gpu * gpus)
    memory_mb = record.memory_per_gpu_mb * gpus
    return cpus, memory_mb or job.memory_per_node_mb or job.memory_per_cpu_mb * cpus


def _own_request(record: LoanRecord, back: JobUpdate) -> JobUpdate:
    """The update `back` with what the user asked for before the loan."""
    asked, per_gpu, memory_mb = record.requests, record.cpus_per_gpu, record.memory_per_gpu_mb
    per_task = gpus_of(asked.tres_per_task)
    return replace(
        back,
        tres_per_node=asked.tres_per_node,
        tres_per_job=asked.tres_per_job or None,
        tres_per_task=asked.tres_per_task or None,
        tres_bind=f"gres/gpu:per_task:{per_task}" if per_task else None,
        req_nodes=record.req_nodes,
        cpus_per_task=(record.cpus_per_task or 1) if per_gpu else None,
        cpus_per_tres=f"gres/gpu:{per_gpu}" if per_gpu else None,
        memory_per_tres=f"gres/gpu:{memory_mb}" if memory_mb else None,
    )


def is_local(job: QueuedJob, record: LoanRecord) -> bool:
    """Does the job ask for its local GPUs alone?"""
    loan = record.loan
    asked = record.requests
    if loan is None or any((asked.tres_per_job and job.tres_per_job, job.tres_per_task)):
        return False
    return same(job.tres_per_node, _local(record, loan))


def is_whole(job: QueuedJob, record: LoanRecord) -> bool:
    """Does the job ask for what it asked for before the loan?"""
    pairs = zip(job.requests, record.requests, strict=True)
    return all(same(now, before) for now, before in pairs) and job.req_nodes == record.req_nodes


def same(one: str, other: str) -> bool:
    """Are these two requests the same GPUs?"""
    try:
        return counts(one) == counts(other)
    except ValueError:
        return one == other


def local_request(text: str, gpus: int) -> str:
    """The request `text` with so many GPUs of its type; what is no GPU stays."""
    model = next(iter(demand.gpu_counts(text)), "")
    return ",".join(filter(None, (_gpus(model, gpus), demand.without_gpus(text))))


def _local(record: LoanRecord, loan: Loan) -> str:
    by_node, by_job, by_task, _ = record.requests
    # A task's other resources (`cpu=1`) are no node's.
    text = by_node or by_job or ",".join(one for one in by_task.split(",") if "gpu" in one)
    return local_request(text, loan.mask.bit_count())


def _gpus(model: str, count: int) -> str:
    return f"gpu:{model}:{count}" if model else f"gpu:{count}"


def _with(job: QueuedJob, record: LoanRecord, note: str) -> str:
    return hints.with_note(record.written_into(job.admin_comment), note)
