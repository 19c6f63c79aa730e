"""A loan in a job's AdminComment: `[gpu-loan: meets tpn=gres/gpu:4 loan=dgx1/3,dgx2/3/71 ...]`.

`may`: the job may borrow (its bridge and its batch script know of it); `meets`: a begin time keeps
it away from all GPUs while its donors start; `starts`: it asks for its local GPUs alone, and
TaskProlog lets it run with every donor or not at all. `tpn` (per node) or `tpj` (for the job) is
what the user asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from slurm_plugin import admin_comment
from slurm_plugin.admin_comment import LOAN, Bracket
from slurm_plugin.lending import loan as loans
from slurm_plugin.lending.loan import Loan
from slurm_plugin.queue import demand
from slurm_plugin.queue.capacity import Node
from slurm_plugin.slurm.gres_text import counts
from slurm_plugin.slurm.interface import NOW, JobUpdate, QueuedJob

MAY, MEETS, STARTS = "may", "meets", "starts"
#: What a submit's reply sets beside the hint.
MARK = Bracket(MAY, {"remote": "1"}, LOAN).text()
#: Longer than donors may take: the job's own request then starts by itself, engine or not.
GATE_S = 30
#: Slurm's highest priorities have a meaning of their own.
HIGHEST = 2**32 - 256

_PER_NODE, _PER_JOB, _PRIORITY = "tpn", "tpj", "prio"
#: Keys of a loan that a job without one does not have.
_OF_START = (_PER_NODE, _PER_JOB, _PRIORITY, "at")


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

    def kept(self, job: QueuedJob) -> Bracket | None:
        """As Mode says."""
        return admin_comment.read(job.admin_comment, LOAN)

    def is_on_loan(self, job: QueuedJob, kept: Bracket) -> bool:
        """As Mode says: one whose begin time came first runs on local GPUs alone."""
        if job.state == "PENDING":
            return True
        return kept.state == STARTS and job.state != "COMPLETING"

    def meets(self, job: QueuedJob, kept: Bracket, note: str) -> JobUpdate:
        """As Mode says."""
        asked = {_PER_NODE: job.tres_per_node, _PER_JOB: job.tres_per_job}
        values = {**kept.values, **asked, _PRIORITY: str(job.priority)}
        comment = _with(job, Bracket(MEETS, values, LOAN), note)
        return JobUpdate(begin_time=self.now + self.ready_s + GATE_S, admin_comment=comment)

    def donor(self, parent: int, node: Node, mask: int) -> JobUpdate:
        """As Mode says."""
        return JobUpdate(
            begin_time=NOW,
            tres_per_node=_gpus(node.model, mask.bit_count()),
            priority=self._first(),
            admin_comment=admin_comment.donor(parent),
        )

    def starts(self, job: QueuedJob, kept: Bracket, loan: Loan) -> JobUpdate:
        """The update that lets a job start on its local GPUs, all donors being ready.

        CPUs are among it: by them Slurm refuses the whole update of a job that runs.
        """
        values = {**kept.values, loans.KEY: loan.text(), "at": str(self.now)}
        note = loans.note(loan, kept.get(loans.WHY))
        return JobUpdate(
            begin_time=NOW,
            tres_per_node=_local(kept, loan),
            tres_per_job="" if kept.get(_PER_JOB) else None,
            req_nodes=loan.host,
            min_cpus=job.cpus or None,
            priority=self._first(),
            admin_comment=_with(job, Bracket(STARTS, values, LOAN), note),
        )

    def given_up(self, job: QueuedJob, kept: Bracket, note: str) -> tuple[JobUpdate, ...]:
        """As Mode says: first its own request, as long as it waits; then nothing of a loan.

        The loan stands until the request is the user's again: a job that started meanwhile has
        to meet its donors.
        """
        left = loans.without(kept).values
        values = {key: text for key, text in left.items() if key not in _OF_START}
        comment = _with(job, Bracket(MAY, values, LOAN), note)
        told = JobUpdate(begin_time=NOW, admin_comment=comment)
        if kept.state != STARTS:
            return (told,)
        back = JobUpdate(min_cpus=job.cpus or None)
        if is_local(job, kept):
            # Another request than ours is the user's, or an administrator's: it stays.
            per_job = kept.get(_PER_JOB) or None
            back = replace(
                back, tres_per_node=kept.get(_PER_NODE), tres_per_job=per_job, req_nodes=""
            )
        if self.is_basic:
            back = replace(back, priority=min(kept.number(_PRIORITY), HIGHEST) or None)
        else:
            back = replace(back, is_released=not job.held or None)
        return back, told

    def _first(self) -> int:
        return min(self.highest + 1, HIGHEST)


def is_local(job: QueuedJob, kept: Bracket) -> bool:
    """Does the job ask for its local GPUs alone?"""
    loan = loans.read(kept.get(loans.KEY))
    if loan is None or (kept.get(_PER_JOB) and job.tres_per_job):
        return False
    return same(job.tres_per_node, _local(kept, loan))


def is_whole(job: QueuedJob, kept: Bracket) -> bool:
    """Does the job ask for what it asked for before the loan?"""
    per_node, per_job = kept.get(_PER_NODE), kept.get(_PER_JOB)
    return same(job.tres_per_node, per_node) and same(job.tres_per_job, per_job)


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


def _local(kept: Bracket, loan: Loan) -> str:
    asked = kept.get(_PER_NODE) or kept.get(_PER_JOB)
    return local_request(asked, loan.mask.bit_count())


def _gpus(model: str, count: int) -> str:
    return f"gpu:{model}:{count}" if model else f"gpu:{count}"


def _with(job: QueuedJob, kept: Bracket, note: str) -> str:
    comment = admin_comment.replaced(job.admin_comment, kept)
    return admin_comment.noted(comment, note)
