"""A job's loan, as its bracket in AdminComment keeps it, and the word of the donors' jobs.

`loan=dgx1/3,dgx2/6/4712/50001`: the job's own node and its slots there, then each donor with the
slots it lends, its job's id and (from the release on) the port it listens at. Masks are
hexadecimal, in Slurm's GPU indices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from slurm_plugin import admin_comment
from slurm_plugin.admin_comment import Bracket
from slurm_plugin.lending.acting.donor import COMMENT
from slurm_plugin.queue.capacity import Hold, Nodes
from slurm_plugin.slurm.interface import QueuedJob

KEY, AT = "loan", "loan_at"
#: Why these donors, in words.
WHY = "loan_why"
#: Keys of a bracket that belong to one loan alone.
OF_LOAN = (KEY, WHY, AT)
_MARKED = re.compile(rf"{COMMENT} of=(\d{{1,10}})\Z")
_READY = re.compile(rf"{COMMENT} ready of=(\d{{1,10}}) port=(\d{{1,5}})\Z")
_FAILED = re.compile(rf"{COMMENT} failed of=(\d{{1,10}}) (.*)\Z", re.DOTALL)
#: Longest word of a donor that is repeated.
SHOWN_CHARS = 120


@dataclass(frozen=True, slots=True)
class Lender:
    """One donor: `mask` of `node`, held by job `job_id`; `port` 0 until it is ready."""

    node: str
    mask: int
    job_id: int
    port: int = 0


@dataclass(frozen=True, slots=True)
class Loan:
    """`mask` of the job's own node `host`, and what others lend."""

    host: str
    mask: int
    lenders: tuple[Lender, ...]

    @property
    def lent(self) -> int:
        """How many GPUs come from other nodes."""
        return sum(lender.mask.bit_count() for lender in self.lenders)

    def text(self) -> str:
        """As it stands in the bracket."""
        parts = [f"{self.host}/{self.mask:x}"]
        for lender in self.lenders:
            port = f"/{lender.port}" if lender.port else ""
            parts.append(f"{lender.node}/{lender.mask:x}/{lender.job_id}{port}")
        return ",".join(parts)

    def with_ports(self, ports: dict[int, int]) -> Loan:
        """The loan with each donor's port by its job's id."""
        lenders = tuple(replace(one, port=ports[one.job_id]) for one in self.lenders)
        return replace(self, lenders=lenders)


def read(text: str) -> Loan | None:
    """The loan that a bracket keeps; None for no loan, or one that cannot be read."""
    parts = [part.split("/") for part in text.split(",")] if text else []
    try:
        (host, mask), lenders = parts[0], []
        for node, lent, job_id, *port in parts[1:]:
            lenders.append(Lender(node, int(lent, 16), int(job_id), int(*port)))
        return Loan(host, int(mask, 16), tuple(lenders)) if lenders else None
    except (IndexError, ValueError, TypeError):
        return None


def without(kept: Bracket) -> Bracket:
    """What a bracket keeps beside the loan."""
    values = {key: text for key, text in kept.values.items() if key not in OF_LOAN}
    return replace(kept, values=values)


def note(loan: Loan, why: str = "") -> str:
    """For people: which GPUs, of which nodes, and why these."""
    lent = [f"{one.node}:{_shown(one.mask)} (job {one.job_id})" for one in loan.lenders]
    told = f"{loan.host}:{_shown(loan.mask)} and, over the network, {', '.join(lent)}"
    return f"{told}, by {why}" if why else told


def gpus_of(mask: int) -> list[int]:
    """Slurm's indices of a mask's GPUs."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def _shown(mask: int) -> str:
    return ",".join(map(str, gpus_of(mask)))


def parent_of(job: QueuedJob) -> int:
    """The id of the job that this donor lends to, by its own record; 0 for no donor.

    The comment, which its user may write, counts only where no bridge marked the job.
    """
    if found := admin_comment.donor_of(job.admin_comment):
        return found
    match = _MARKED.match(job.comment) or _READY.match(job.comment) or _FAILED.match(job.comment)
    return int(match[1]) if match else 0


def lends_to(donor: QueuedJob, borrower: QueuedJob) -> bool:
    """Is this job the borrower's donor? Only such a one may be ended for the borrower's sake."""
    return donor.uid == borrower.uid and parent_of(donor) == borrower.job_id


def port_of(job: QueuedJob, parent: int) -> int:
    """Where a running donor of `parent` says that it is ready; 0 where it does not."""
    match = _READY.match(job.comment) if job.state == "RUNNING" else None
    return int(match[2]) if match and int(match[1]) == parent else 0


def trouble_of(lender: Lender, donor: QueuedJob | None, borrower: QueuedJob) -> str:
    """Why a donor cannot serve; '' where nothing is known of that."""
    if donor is None or donor.state == "COMPLETING":
        return f"the donor on {lender.node} is gone"
    if not lends_to(donor, borrower):
        return f"job {donor.name} on {lender.node} is no donor of this job"
    match = _FAILED.match(donor.comment)
    if match is not None and int(match[1]) == borrower.job_id:
        return " ".join(match[2].split())[:SHOWN_CHARS] or "a donor failed"
    return "" if _is_as_lent(lender, donor) else f"the donor on {lender.node} was changed"


def _is_as_lent(lender: Lender, donor: QueuedJob) -> bool:
    """Does a donor hold, or ask for, no more than it is to lend?"""
    if donor.state == "PENDING":
        return donor.min_nodes <= 1 and donor.max_nodes <= 1 and donor.req_nodes == lender.node
    # In the slots mode the GPUs are the mask's own, else Slurm's choice of as many.
    gpus = donor.gpus.get(lender.node, ())
    return donor.nodes == (lender.node,) and len(gpus) == lender.mask.bit_count()


@dataclass(frozen=True, slots=True)
class Standing:
    """How a loan stands: donors' `ports` by job id once all are ready, or what is in its way."""

    ports: dict[int, int]
    trouble: str = ""

    @property
    def is_ready(self) -> bool:
        """May the job start?"""
        return bool(self.ports) and not self.trouble


def standing(borrower: QueuedJob, loan: Loan, queue: Mapping[int, QueuedJob]) -> Standing:
    """How a loan stands, by the donors' own jobs; `queue` is by job id."""
    ports: dict[int, int] = {}
    for lender in loan.lenders:
        donor = queue.get(lender.job_id)
        if trouble := trouble_of(lender, donor, borrower):
            return Standing({}, trouble)
        if donor is not None and (port := port_of(donor, borrower.job_id)):
            ports[lender.job_id] = port
    return Standing(ports if len(ports) == len(loan.lenders) else {})


def obstacle(
    job: QueuedJob,
    loan: Loan | None,
    at: int,
    room: Nodes | None,
    queue: Mapping[int, QueuedJob],
    now: int,
    ready_s: int | None,
) -> str:
    """Why a loan made `at` (epoch) that the job waits for cannot go on; '' where it can.

    `ready_s` None: nothing is lent any more. `room` None: whether its local GPUs are free is not
    looked at.
    """
    if loan is None:
        return "the loan cannot be read"
    if ready_s is None:
        return "GPUs are not lent any more"
    if job.held or job.depends:
        return "the job was held"
    if room is not None:
        host = room.get(loan.host)
        if host is None or not host.is_open or loan.mask & ~host.free:
            return f"the GPUs of {loan.host} are others' now"
    found = standing(job, loan, queue)
    if found.trouble:
        return found.trouble
    # A loan of the future was made before the clock was set back.
    if not found.is_ready and abs(now - at) > ready_s:
        return f"donors were not ready within {ready_s} s"
    return ""


def donors_hold(lender: Lender, donor: QueuedJob, end: float) -> Hold:
    """What a donor that waits for its start is about to hold."""
    return Hold({lender.node: lender.mask}, donor.cpus, donor.memory_per_node_mb, end)
