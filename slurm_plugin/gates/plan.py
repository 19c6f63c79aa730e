"""The words of a plan: what a look at the queue asks, and what it comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_plugin.job_notes.records import GateRecord
from slurm_plugin.lending.plan import LoanPlan
from slurm_plugin.queue.candidates import Group, Need
from slurm_plugin.queue.capacity import Hold
from slurm_plugin.queue.demand import Demand
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob


@dataclass(frozen=True, slots=True)
class Want:
    """What a job with our record asked for and needs."""

    kept: GateRecord
    asked: Demand | None = None
    need: Need | None = None
    #: Why slots cannot serve the job, which then has no need; '' where they can.
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A policy gave these slots of this group."""

    group: Group
    mask: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Waits:
    """A policy lets the job wait for something better."""

    note: str


@dataclass(frozen=True, slots=True)
class Left:
    """Slurm's own choice."""

    note: str


Choice = Chosen | Waits | Left
#: Asked about a job by the name that an update calls it.
Choose = Callable[[str, QueuedJob, Want, Sequence[Group]], Choice]


@dataclass(frozen=True, slots=True)
class GateContext:
    """What a plan goes by, besides the queue and the nodes."""

    #: The time (epoch).
    now: int
    #: How long a gate holds.
    lease_s: int
    #: How long a released job may take to start.
    grace_s: int
    #: PriorityTier by partition.
    tiers: Mapping[str, int] = field(default_factory=dict)
    #: Was an update of the job of this name refused so lately that it is not tried again yet?
    is_paused: Callable[[str, float], bool] = lambda *_: False
    #: Until when (epoch) gates hold of which no field of Slurm's tells, by job id.
    holds_until: Mapping[int, float] = field(default_factory=dict)
    #: How long donors may take.
    ready_s: int = 60


@dataclass(frozen=True, slots=True)
class JobRelease:
    """What lets a job start: one, an array's task, or the components of a heterogeneous one.

    `steps` are updates by the name of the job they are for, in this order; each must be taken
    before the next, or `undo` follows. `jobs` are those that start, by the same names, with
    what each then holds.
    """

    jobs: Mapping[str, QueuedJob]
    steps: tuple[tuple[str, JobUpdate], ...]
    holds: tuple[Hold, ...]
    undo: tuple[tuple[str, JobUpdate], ...] = ()


@dataclass(slots=True)
class GatePlan(LoanPlan):
    """What to do about gates: `updates` are repairs, notes, and jobs left to Slurm."""

    releases: list[JobRelease] = field(default_factory=list)
    updates: list[tuple[str, JobUpdate]] = field(default_factory=list)
    renew: list[str] = field(default_factory=list)
    renewed: list[int] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    @property
    def changes_slurm(self) -> bool:
        """Is anything to be done?"""
        gates = self.releases or self.updates or self.renew
        return bool(gates or self.offers or self.broken or self.declined)

    @property
    def released(self) -> list[str]:
        """The names of the jobs that are let go."""
        return [name for release in self.releases for name in release.jobs]
