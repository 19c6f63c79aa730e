"""The state of a loan, as its donors' jobs report it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from slurm_plugin.act.lending.plan import LoanContext
from slurm_plugin.base.job_notes import donor as donors
from slurm_plugin.base.job_notes.donor import DonorReport
from slurm_plugin.base.job_notes.loan import LoanDonor
from slurm_plugin.base.job_notes.records import JobRecord
from slurm_plugin.queue.capacity import Hold, Nodes
from slurm_plugin.slurm.interface import QueuedJob

#: The most characters of a donor's own words that are repeated.
SHOWN_CHARS = 120


def parent_of(job: QueuedJob) -> int:
    """The id of the job that this donor lends to; 0 for no donor.

    AdminComment counts first. The comment, which its user can write, counts only without that.
    """
    if borrower := donors.borrower_in(job.admin_comment):
        return borrower
    report = DonorReport.read_from(job.comment)
    return report.borrower if report else 0


def lends_to(donor: QueuedJob, borrower: QueuedJob) -> bool:
    """Is this job the borrower's donor? Nothing else may be cancelled when a loan ends."""
    return donor.uid == borrower.uid and parent_of(donor) == borrower.job_id


def port_of(job: QueuedJob, parent: int) -> int:
    """The port on which a running donor of job `parent` is ready; 0 where it is not ready."""
    report = DonorReport.read_from(job.comment) if job.state == "RUNNING" else None
    return report.port if report and report.borrower == parent else 0


def trouble_of(share: LoanDonor, donor: QueuedJob | None, borrower: QueuedJob) -> str:
    """Why a donor cannot serve; '' where it can, as far as is known."""
    if donor is None or donor.state == "COMPLETING":
        return f"the donor on {share.node} is gone"
    if not lends_to(donor, borrower):
        return f"job {donor.name} on {share.node} is no donor of this job"
    report = DonorReport.read_from(donor.comment)
    if report and report.failure is not None and report.borrower == borrower.job_id:
        return " ".join(report.failure.split())[:SHOWN_CHARS] or "a donor failed"
    return "" if _is_as_planned(share, donor) else f"the donor on {share.node} was changed"


def _is_as_planned(share: LoanDonor, donor: QueuedJob) -> bool:
    """Does a donor hold, or ask for, no more than it is to lend?"""
    if donor.state == "PENDING":
        return donor.min_nodes <= 1 and donor.max_nodes <= 1 and donor.req_nodes == share.node
    # In the slots mode the GPUs are the mask's own, else Slurm's choice of as many.
    gpus = donor.gpus.get(share.node, ())
    return donor.nodes == (share.node,) and len(gpus) == share.mask.bit_count()


class Standing(NamedTuple):
    """How a loan stands, by the donors' own jobs."""

    #: The donors' ports by job id, once all of them are ready.
    ports: Mapping[int, int]
    #: Why the loan cannot go on; '' where it can.
    trouble: str = ""


def standing(
    job: QueuedJob,
    record: JobRecord,
    nodes: Nodes | None,
    queue: Mapping[int, QueuedJob],
    context: LoanContext,
) -> Standing:
    """How the loan in the job's record stands; `queue` is by job id.

    `nodes` None: its local GPUs need not be free.
    """
    loan, ready_s = record.loan, context.ready_s
    if loan is None:
        return Standing({}, "the loan cannot be read")
    if ready_s is None:
        return Standing({}, "GPUs are not lent any more")
    if job.held or job.depends:
        return Standing({}, "the job was held")
    if nodes is not None:
        host = nodes.get(loan.host)
        if host is None or not host.is_open or loan.mask & ~host.free:
            return Standing({}, f"the GPUs of {loan.host} are others' now")
    ports: dict[int, int] = {}
    for share in loan.donors:
        donor = queue.get(share.job_id)
        if trouble := trouble_of(share, donor, job):
            return Standing({}, trouble)
        if donor is not None and (port := port_of(donor, job.job_id)):
            ports[share.job_id] = port
    if len(ports) == len(loan.donors):
        return Standing(ports)
    # A loan whose time is still to come was made before the clock was set back.
    is_late = abs(context.now - record.loan_made_at) > ready_s
    return Standing({}, f"donors were not ready within {ready_s} s" if is_late else "")


def donors_hold(share: LoanDonor, donor: QueuedJob, end: float) -> Hold:
    """What a donor that waits for its start is about to hold."""
    return Hold({share.node: share.mask}, donor.cpus, donor.memory_per_node_mb, end)
