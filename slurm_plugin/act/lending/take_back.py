"""Takes lent GPUs back for the first job that waits for local ones, where site and user allow it.

The borrower is requeued, at most once in its life: its record says so before Slurm is asked. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from slurm_plugin.act.lending import standing as loans
from slurm_plugin.base.job_notes.loan import Loan
from slurm_plugin.base.job_notes.records import JobRecord
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import Nodes, held_by, without_holds
from slurm_plugin.queue.slurms_choice import can_start
from slurm_plugin.slurm.interface import QueuedJob


class Borrowed(NamedTuple):
    """A running job with a loan, which may be requeued."""

    job: QueuedJob
    record: JobRecord
    loan: Loan


def chosen(
    first: Need, nodes: Nodes, borrowed: Sequence[Borrowed], queue: Sequence[QueuedJob], now: float
) -> Borrowed | None:
    """The borrower whose GPUs, its own and lent ones, let the first job start; None for none.

    Of several the one that ran least: it loses least. `nodes` are as they are now; what jobs hold
    that are about to be over comes free anyway.
    """
    ending = [held_by(job, now) for job in queue if job.state == "COMPLETING"]
    if can_start(first, without_holds(nodes, ending)):
        return None
    there = {job.job_id: job for job in queue}
    for one in sorted(borrowed, key=lambda each: (-each.job.start, each.job.job_id)):
        held = [held_by(job, now) for job in _jobs_of(one, there)]
        if can_start(first, without_holds(nodes, held)):
            return one
    return None


def _jobs_of(one: Borrowed, there: Mapping[int, QueuedJob]) -> Iterator[QueuedJob]:
    yield one.job
    for donor in one.loan.donors:
        job = there.get(donor.job_id)
        if job is not None and job.state == "RUNNING" and loans.lends_to(job, one.job):
            yield job
