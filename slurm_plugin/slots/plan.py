"""The words of a plan: what a look at the queue asks, and what it comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_plugin.admin_comment import Bracket
from slurm_plugin.remote.offer import Declined
from slurm_plugin.slots.borrowing import Offered
from slurm_plugin.slots.candidates import Group, Need
from slurm_plugin.slots.room import Hold, Room, with_hold
from slurm_plugin.slots.want import Want
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob


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
class Terms:
    """The time (epoch), how long a gate holds, how long a released job may take to start.

    `tiers` are the partitions' PriorityTier, `paused` says of jobs until when not to try again
    (Slurm refused an update), `holds_until` when the gates open that no field of Slurm tells,
    `ready_s` how long donors may take.
    """

    now: int
    lease_s: int
    grace_s: int
    tiers: Mapping[str, int] = field(default_factory=dict)
    paused: Mapping[str, float] = field(default_factory=dict)
    holds_until: Mapping[int, float] = field(default_factory=dict)
    ready_s: int = 60


@dataclass(frozen=True, slots=True)
class Release:
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
class Plan:
    """What to do, and what is then taken: `added` are the holds of jobs about to start.

    `updates` are repairs, notes, and jobs left to Slurm. `again`: look again soon. `offers` are
    loans to be made, `broken` those that came to nothing, and why; `declined` are jobs that nothing
    is lent to.
    """

    room: Room
    holds: list[Hold] = field(default_factory=list)
    added: list[Hold] = field(default_factory=list)
    first: Need | None = None
    releases: list[Release] = field(default_factory=list)
    updates: list[tuple[str, JobUpdate]] = field(default_factory=list)
    renew: list[str] = field(default_factory=list)
    renewed: list[int] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    again: bool = False
    offers: list[tuple[QueuedJob, Bracket, Offered]] = field(default_factory=list)
    broken: list[tuple[QueuedJob, Bracket, str]] = field(default_factory=list)
    declined: list[tuple[QueuedJob, Bracket, Declined]] = field(default_factory=list)

    @property
    def released(self) -> list[str]:
        """The names of the jobs that are let go."""
        return [name for release in self.releases for name in release.jobs]

    def take(self, hold: Hold) -> None:
        """A job is about to hold this."""
        self.room = with_hold(self.room, hold)
        self.holds.append(hold)
        self.added.append(hold)
