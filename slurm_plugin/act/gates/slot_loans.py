"""Loans behind a gate: the job is released when its donors are ready, or loses its loan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slurm_plugin.act.gates import change
from slurm_plugin.act.gates.plan import GateContext, GatePlan, JobRelease, Want
from slurm_plugin.act.lending import standing as loans
from slurm_plugin.base.job_notes import donor, hints
from slurm_plugin.base.job_notes.records import GATED, GateRecord
from slurm_plugin.queue.candidates import Group
from slurm_plugin.queue.capacity import Node, end_of
from slurm_plugin.queue.demand import gpus_of
from slurm_plugin.slurm import slot_types
from slurm_plugin.slurm.interface import NOW, JobUpdate, QueuedJob

STARTS, MEETS, BROKEN = "starts", "meets", "broken"


class SlotLoans:
    """Loans in the slots mode: the gate keeps the job from all GPUs until its donors are ready."""

    kind = GateRecord

    def is_on_loan(self, job: QueuedJob, kept: GateRecord) -> bool:
        """Gated or placed, a job with a loan starts on nothing else."""
        return job.state != "COMPLETING"

    def meets(self, job: QueuedJob, kept: GateRecord, note: str) -> JobUpdate:
        """The update that names the donors in `kept` before they start."""
        return _noted(job, kept, note)

    def donor(self, parent: int, node: Node, mask: int) -> JobUpdate:
        """The update that gives a donor its GPUs, and lets it start."""
        slots = slot_types.request(node.gpu_types, mask)
        own = donor.entry(parent)
        return JobUpdate(begin_time=NOW, tres_per_node=slots, admin_comment=own)

    def given_up(self, job: QueuedJob, kept: GateRecord, note: str) -> tuple[JobUpdate, ...]:
        """The update that takes the loan away; the gated job has its own request still."""
        return (_noted(job, kept.without_loan().without("mpg"), note),)


def _noted(job: QueuedJob, kept: GateRecord, note: str) -> JobUpdate:
    comment = kept.written_into(job.admin_comment)
    return JobUpdate(admin_comment=hints.with_note(comment, note))


def continue_loan(
    job: QueuedJob,
    want: Want,
    made: GatePlan,
    queue: Mapping[int, QueuedJob],
    context: GateContext,
) -> str:
    """Go on with a gated job's loan: its donors are awaited or ready, or the loan is broken.

    The plan takes what the jobs of the loan are about to hold.
    """
    loan, end = want.kept.loan, end_of(job, context.now)
    state = loans.standing(job, want.kept, made.nodes, queue, context)
    if state.trouble or loan is None or want.need is None:
        made.broken.append((job, want.kept, state.trouble or "the loan cannot be read"))
        return BROKEN
    need = replace(want.need, gpus=loan.mask.bit_count())
    made.take(need.hold([loan.host], loan.mask, end))
    if not state.ports:
        for share in loan.donors:
            donor = queue[share.job_id]
            if donor.state == "PENDING":
                made.take(loans.donors_hold(share, donor, end))
        return MEETS
    ready = loan.with_ports(state.ports)
    kept = want.kept.changed(GATED, loan=ready.text())
    node = made.nodes[loan.host]
    group = Group((loan.host,), node.gpu_types, loan.mask, node.weight)
    note = loan.note(kept.loan_reason)
    if memory_mb := gpus_of(job.memory_per_tres):
        kept = kept.changed(mpg=memory_mb)
    part = change.ReleasedPart(job.name, job, kept, need, group, loan.mask, note, want.need.gpus)
    steps = change.release([part], context.now)
    made.releases.append(JobRelease({job.name: job}, steps, (made.added[-1],)))
    return STARTS
