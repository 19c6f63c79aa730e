"""What one snapshot of Slurm says of the site: GPUs, jobs, waits, gates, loans. Pure.

Only jobs that hold or ask for GPUs count. Users choose no label: states and reasons are Slurm's
words or ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from policies.fragmentation import Fragmentation
from slurm_plugin.act.lending import standing as loans
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.records import GATED, MEETS, GateRecord, JobRecord, LoanRecord
from slurm_plugin.queue.capacity import Node, is_open
from slurm_plugin.queue.demand import NOT_LOOKED_AT
from slurm_plugin.queue.snapshot import Snapshot
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.tell.why.site import fragmentation_now, site_of
from slurm_plugin.tell.why.state import WaitingState

#: Different reasons of Slurm that are told apart.
MAX_REASONS = 48
#: Starts are looked at for so long, and not before their notice must have come.
LATELY_S, ON_ITS_WAY_S = 3600, 3


@dataclass(slots=True)
class SiteFigures:
    """Counts of one moment."""

    #: When Slurm was read (epoch).
    at: float
    fragmentation: Fragmentation
    #: GPUs that are `used`, `free` or, neither, on nodes where Slurm starts nothing (`closed`).
    gpus: Counter[str] = field(default_factory=Counter)
    #: Jobs with GPUs that are `running` or `waiting`; tasks of an array one by one.
    jobs: Counter[str] = field(default_factory=Counter)
    #: Those that wait, by what they wait for.
    waits: Counter[str] = field(default_factory=Counter)
    #: Jobs with a record of the slots mode: `gated`, or `placed` and not running yet.
    gates: Counter[str] = field(default_factory=Counter)
    #: Jobs with a loan that are `starting` or `running`.
    loans: Counter[str] = field(default_factory=Counter)
    #: GPUs that donors hold for running borrowers.
    lent: int = 0
    #: Donors whose borrower is gone.
    orphans: int = 0
    #: Jobs with GPUs that started lately without the engine's being told.
    unheard: int = 0


def figures_of(
    snapshot: Snapshot,
    has_heard_of: Callable[[int], bool] = lambda job: True,
    since: float = 0,
) -> SiteFigures:
    """The figures of a snapshot that shows the nodes.

    Of every job with GPUs that started after `since` (epoch) the engine should have heard.
    """
    # So short a job sees the nodes as they are now.
    site = site_of(WaitingState(QueuedJob(0, time_limit_s=1), snapshot))
    # Reservations are not read for this: nodes under one are nobody's, as Slurm's states say.
    closed = {node.name for node in snapshot.nodes if not is_open(node)}
    nodes = {n: replace(node, is_open=n not in closed) for n, node in site.nodes.items()}
    site = replace(site, nodes=nodes)
    made = SiteFigures(snapshot.at, fragmentation_now(snapshot, site), _gpus(site.nodes.values()))
    there = {job.job_id for job in snapshot.jobs}
    for job in snapshot.jobs:
        gate = GateRecord.read_from(job.admin_comment)
        record: JobRecord | None = gate or LoanRecord.read_from(job.admin_comment)
        is_pending = job.state == "PENDING"
        borrower = loans.parent_of(job)
        if borrower and borrower not in there and job.state != "COMPLETING":
            made.orphans += 1
        if record is not None and (loan := record.loan) is not None:
            made.loans["starting" if is_pending else "running"] += 1
            if not is_pending:
                made.lent += sum(donor.mask.bit_count() for donor in loan.donors)
        if not is_pending:
            made.jobs["running"] += bool(job.gpus)
            is_due = max(since, snapshot.at - LATELY_S) < job.start < snapshot.at - ON_ITS_WAY_S
            made.unheard += bool(job.gpus) and is_due and not has_heard_of(job.job_id)
        elif gate is not None or borrower or any("gpu" in text for text in job.requests):
            made.jobs["waiting"] += job.tasks
            made.waits[_known(_reason(job, gate, record), made.waits)] += job.tasks
            if gate is not None:
                made.gates[gate.state] += job.tasks
    return made


def _gpus(nodes: Iterable[Node]) -> Counter[str]:
    """GPUs by state."""
    gpus = Counter(used=0, free=0, closed=0)
    for node in nodes:
        free = node.free.bit_count()
        gpus["used"] += len(node.gpu_types) - free
        gpus["free" if node.is_open else "closed"] += free
    return gpus


def _reason(job: QueuedJob, gate: GateRecord | None, record: JobRecord | None) -> str:
    """What the job waits for: our own waits first, then Slurm's reason."""
    if loans.parent_of(job):
        return "lends"
    if job.held or job.reason.startswith(("Dependency", "JobHeld")):
        return job.reason or "JobHeldUser"
    if record is not None and record.loan is not None:
        return "loan"
    if isinstance(record, LoanRecord) and record.state == MEETS:
        return "loan"
    if gate is not None and gate.state == GATED and job.reason in NOT_LOOKED_AT:
        return "gate"
    if hints.postponed_until(job.admin_comment) is not None:
        return "postponed"
    return job.reason or "None"


def _known(reason: str, waits: Counter[str]) -> str:
    return reason if reason in waits or len(waits) < MAX_REASONS else "other"
