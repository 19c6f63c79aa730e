"""Loans in a plan: who may start now that its donors are ready, and whose loan came to nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from slurm_plugin.remote import loan as loans
from slurm_plugin.remote.loan import Loan
from slurm_plugin.remote.offer import Declined
from slurm_plugin.slots import change
from slurm_plugin.slots.borrowing import Offered
from slurm_plugin.slots.bracket import Bracket
from slurm_plugin.slots.candidates import Group
from slurm_plugin.slots.plan import Plan, Release
from slurm_plugin.slots.room import Hold, Room
from slurm_plugin.slots.want import Want
from slurm_plugin.slurm.interface import QueuedJob


class Lends(Protocol):
    """Asked about jobs that fit on no node."""

    @property
    def at_once(self) -> bool:
        """Are all of them to be asked about together?"""
        ...

    def borrow(
        self, jobs: Sequence[tuple[QueuedJob, Want]], made: Plan
    ) -> Sequence[Offered | Declined | None]:
        """Who would lend to each; None to a job that may not borrow."""
        ...


STARTS, MEETS, BROKEN = "starts", "meets", "broken"


def look_at(
    job: QueuedJob,
    want: Want,
    made: Plan,
    queue: Mapping[int, QueuedJob],
    now: int,
    ready_s: int | None,
    end: float,
) -> str:
    """A gated job with a loan: release it, let it wait for its donors, or end the loan.

    What it holds meanwhile is taken in the plan. `ready_s` None: nothing is lent any more.
    """
    loan = loans.read(want.kept.get(loans.KEY))
    why = _broken(job, want, loan, made.room, queue, now, ready_s)
    if why or loan is None:
        made.broken.append((job, want.kept, why or "the loan cannot be read"))
        return BROKEN
    assert want.need is not None
    need = replace(want.need, gpus=loan.mask.bit_count())
    made.take(need.hold([loan.host], loan.mask, end))
    standing = loans.standing(job.job_id, loan, queue.values())
    if not standing.is_ready:
        for lender in loan.lenders:
            donor = queue[lender.job_id]
            if donor.state == "PENDING":
                hold = Hold({lender.node: lender.mask}, donor.cpus, donor.memory_per_node_mb, end)
                made.take(hold)
        return MEETS
    ready = loan.with_ports(standing.ports)
    kept = Bracket("gated", {**want.kept.values, loans.KEY: ready.text()})
    node = made.room[loan.host]
    group = Group((loan.host,), node.slots, loan.mask, node.weight)
    note = loans.note(loan, kept.get(loans.WHY))
    part = change.Part(job.name, job, kept, need, group, loan.mask, note)
    steps = change.release([part], now)
    made.releases.append(Release({job.name: job}, steps, (made.added[-1],)))
    return STARTS


def _broken(
    job: QueuedJob,
    want: Want,
    loan: Loan | None,
    room: Room,
    queue: Mapping[int, QueuedJob],
    now: int,
    ready_s: int | None,
) -> str:
    """Why a loan cannot go on; '' where it can."""
    if loan is None or want.need is None:
        return "the loan cannot be read"
    if ready_s is None:
        return "GPUs are not lent any more"
    if job.held or job.depends:
        return "the job was held"
    host = room.get(loan.host)
    if host is None or not host.is_open or loan.mask & ~host.free:
        return f"the GPUs of {loan.host} are others' now"
    standing = loans.standing(job.job_id, loan, queue.values())
    if standing.trouble:
        return standing.trouble
    if not standing.is_ready and now - int(want.kept.get("loan_at") or 0) > ready_s:
        return f"donors were not ready within {ready_s} s"
    return ""
