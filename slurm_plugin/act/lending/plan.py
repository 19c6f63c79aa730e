"""What one reading of the queue leads to, as far as loans go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slurm_plugin.act.lending.choice.offer import Offer, Refusal
from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.records import JobRecord
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import Hold, Nodes, with_hold
from slurm_plugin.slurm.interface import QueuedJob

#: Jobs that are told in one round why nothing is lent to them: each takes an update, and whoever
#: submits a thousand such jobs is not to keep others from their loans meanwhile.
MOST_TOLD = 50


@dataclass(frozen=True, slots=True)
class LoanContext:
    """What a plan goes by, besides the queue and the nodes."""

    #: The time (epoch).
    now: int
    #: PriorityTier by partition.
    tiers: Mapping[str, int] = field(default_factory=dict)
    #: How long a job that was let go may take to start, in seconds.
    grace_s: int = 30
    #: How long donors may take to get ready, in seconds; None: nothing is lent any more.
    ready_s: int | None = 60
    #: Is the job of this name left alone, because Slurm refused an update of it a moment ago?
    is_paused: Callable[[str, float], bool] = lambda *_: False


@dataclass(frozen=True, slots=True)
class LoanCandidate:
    """A waiting job that fits on no node now, and that could perhaps borrow."""

    job: QueuedJob
    record: JobRecord
    need: Need
    #: Why jobs of its form borrow nothing; '' where they may.
    obstacle: str = ""


@dataclass(slots=True)
class LoanPlan:
    """What is free once everything decided so far has started, and the loans among it."""

    nodes: Nodes
    #: What jobs hold, those that run included.
    holds: list[Hold] = field(default_factory=list)
    #: Those of `holds` that belong to jobs about to start.
    added: list[Hold] = field(default_factory=list)
    #: What the first job that waits for local GPUs needs.
    first: Need | None = None
    #: The first job that fits on no node, be it that it borrows in the end.
    waits: QueuedJob | None = None
    #: Poll again soon.
    again: bool = False
    #: Loans to be made.
    offers: list[tuple[QueuedJob, JobRecord, Offer]] = field(default_factory=list)
    #: Arrays of which one task is made a job of its own, so that it can be lent to.
    splits: list[QueuedJob] = field(default_factory=list)
    #: Loans that came to nothing, and why.
    broken: list[tuple[QueuedJob, JobRecord, str]] = field(default_factory=list)
    #: Jobs that nothing is lent to, and why.
    refusals: list[tuple[QueuedJob, JobRecord, Refusal]] = field(default_factory=list)

    @property
    def changes_slurm(self) -> bool:
        """Is anything to be done?"""
        return bool(self.offers or self.splits or self.broken or self.refusals)

    def refuse(self, job: QueuedJob, record: JobRecord, refusal: Refusal) -> None:
        """Note why nothing is lent to a job, unless it says so already or its turn comes later."""
        is_recorded = bool(record.held_by_network_since) or not refusal.is_network
        is_told = is_recorded and hints.has_note(job.admin_comment, refusal.why)
        if not is_told and len(self.refusals) < MOST_TOLD:
            self.refusals.append((job, record, refusal))

    def take(self, hold: Hold) -> None:
        """A job is about to hold this."""
        self.nodes = with_hold(self.nodes, hold)
        self.holds.append(hold)
        self.added.append(hold)
