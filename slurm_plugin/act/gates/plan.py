"""What a plan of the gates goes by, and what it comes to."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from operator import itemgetter
from typing import NamedTuple

from slurm_plugin.act.gates.limits import LOOK_S, NOTHING, KnownLimits, Tries
from slurm_plugin.act.lending.plan import LoanContext, LoanPlan
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.base.protocol import Pass, WaitFor
from slurm_plugin.queue.backfill import Place, WaitingLine, place_at
from slurm_plugin.queue.candidates import Group, Need
from slurm_plugin.queue.capacity import Hold
from slurm_plugin.queue.demand import Demand, Unplaceable, node_names
from slurm_plugin.queue.snapshot import NO_SETTINGS, Settings, is_up, would_start
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob, Reservation, SlurmPartition


@dataclass(frozen=True, slots=True)
class Want:
    """What a job with our record asked for and needs."""

    kept: GateRecord
    asked: Demand | None = None
    need: Need | None = None
    #: Why slots cannot serve the job, which then has no need; '' where they can.
    problem: str = ""


#: So many waiting jobs, the first in Slurm's order, have gates of one lease; all others of
#: `FAR_LEASES`. To renew a gate costs slurmctld as much as any update.
NEAR, FAR_LEASES = 500, 10

Member = tuple[QueuedJob, Want]
#: A job that is Slurm's own at one of its turns, with what it needs then.
Waiting = tuple[Place, QueuedJob, Need]


@dataclass(frozen=True, slots=True)
class Unit:
    """One job, or the components of a heterogeneous one that get slots, by their offset."""

    members: tuple[Member, ...]
    #: Components that are Slurm's own, such as those without GPUs.
    others: tuple[QueuedJob, ...] = ()
    #: Is this its last turn? Until then it is released or left alone.
    is_last: bool = True

    @property
    def first(self) -> Member:
        """The job, or its first component."""
        return self.members[0]

    @property
    def gate(self) -> str:
        """What updates of its start time call it: a first component's go to all of them."""
        job, _ = self.first
        return str(job.het_id) if job.het_id else job.name

    @property
    def nodes_of_others(self) -> frozenset[str] | None:
        """The nodes that Slurm's own components name; None where Slurm is to choose some.

        Slurm gives each component nodes of its own, and plans the first one first.
        """
        found = set[str]()
        for job in self.others:
            try:
                named = node_names(job.req_nodes)
            except Unplaceable:
                return None
            if len(named) < max(1, job.min_nodes):
                return None
            found |= named
        return frozenset(found)


def units_of(ordered: Iterable[QueuedJob], wants: Mapping[int, Want]) -> list[Unit]:
    """The units of pending jobs, in their order."""
    together: dict[tuple[str, int], list[Member]] = {}
    others: defaultdict[int, list[QueuedJob]] = defaultdict(list)
    for job in ordered:
        want = wants.get(job.job_id)
        if want is not None:
            key = ("het", job.het_id) if job.het_id else ("job", job.job_id)
            together.setdefault(key, []).append((job, want))
        elif job.het_id:
            others[job.het_id].append(job)
    return [_unit(members, others[members[0][0].het_id]) for members in together.values()]


def _unit(members: list[Member], others: list[QueuedJob]) -> Unit:
    first, *rest = sorted(members, key=lambda member: member[0].het_offset)
    token = first[1].kept.token
    own = [first]
    for job, want in rest:
        if want.kept.token != token:
            own.append((job, want))
        else:
            # Slurm copied the first component's comment to it, and its own update never came.
            others.append(replace(job, admin_comment="", req_nodes=""))
    return Unit(tuple(own), tuple(others))


class TierTurns:
    """When whose turn is: Slurm sorts one record of each job and partition by that one's tier.

    So a job has a turn at each tier of its partitions, at which only the nodes of the partitions of
    that tier or a higher one count. Else a full partition of a high tier would give it the nodes of
    a low one before the jobs that come first there.
    """

    def __init__(self, tiers: Mapping[str, int], partitions: Mapping[str, SlurmPartition]) -> None:
        """`tiers` are the PriorityTier by partition."""
        # Of ten thousand jobs most are alike in these.
        self._tiers_of = cache(
            lambda names: sorted({tiers.get(n, 1) for n in names.split(",")}, reverse=True)
        )
        self._partitions_of = cache(
            lambda names, tier, time_s, nodes: frozenset(
                name
                for name in names.split(",")
                if tiers.get(name, 1) >= tier
                and is_up([name], partitions)
                and would_start([name], time_s, nodes, partitions)
            )
        )
        self._needs: dict[tuple[int, frozenset[str]], Need] = {}

    def of_units(self, units: Iterable[Unit]) -> list[tuple[Place, Unit]]:
        """The turns in Slurm's order; at its last one a unit may have any node of its jobs."""
        turns = list[tuple[Place, Unit]]()
        for unit in units:
            mine = [self._tiers_of(job.partition) for job, _ in unit.members]
            # Components start together: not before the last of them has its first turn.
            top, least = min(one[0] for one in mine), min(one[-1] for one in mine)
            between = {tier for one in mine for tier in one if least < tier <= top}
            for tier in between:
                members = [self._narrowed(member, tier) for member in unit.members]
                if all(want.need and want.need.partitions for _, want in members):
                    now = Unit(tuple(members), unit.others, is_last=False)
                    turns.append((_place(now, tier), now))
            members = [self._narrowed(member, least) for member in unit.members]
            if all(want.need and want.need.partitions for _, want in members):
                # On nodes alone of partitions that would not start it Slurm leaves it waiting.
                unit = Unit(tuple(members), unit.others)
            turns.append((_place(unit, least), unit))
        return sorted(turns, key=itemgetter(0))

    def of_slurms(self, jobs: Iterable[tuple[QueuedJob, Need]]) -> deque[Waiting]:
        """The same of jobs that are Slurm's own, with what they need."""
        turns = list[Waiting]()
        for job, need in jobs:
            *earlier, last = self._tiers_of(job.partition)
            needs = [(tier, self._need(job, need, tier)) for tier in earlier]
            turns += [(place_at(job, tier), job, one) for tier, one in needs if one.partitions]
            turns.append((place_at(job, last), job, need))
        return deque(sorted(turns, key=itemgetter(0)))

    def _narrowed(self, member: Member, tier: int) -> Member:
        job, want = member
        return job, replace(want, need=want.need and self._need(job, want.need, tier))

    def _need(self, job: QueuedJob, need: Need, tier: int) -> Need:
        """What the job needs at this turn; equal needs are one object, as those of all jobs."""
        names = self._partitions_of(job.partition, tier, job.time_limit_s, need.nodes)
        if names == need.partitions:
            return need
        key = id(need), names
        if key not in self._needs:
            self._needs[key] = replace(need, partitions=names)
        return self._needs[key]


def _place(unit: Unit, tier: int) -> Place:
    return min(place_at(job, tier) for job, _ in unit.members)


@dataclass(frozen=True, slots=True)
class ChosenSlots:
    """A policy gave these slots of this group."""

    group: Group
    mask: int
    note: str = ""


#: Slots, a wait for better ones, or Slurm's own choice; each with its note.
Choice = ChosenSlots | WaitFor | Pass
#: Asks a policy about a job; the first argument is what updates call it.
Choose = Callable[[str, QueuedJob, Want, Sequence[Group]], Choice]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateContext(LoanContext):
    """What a plan of the gates goes by, besides the queue and the nodes."""

    #: How long a gate holds, in seconds.
    lease_s: int
    #: Job id -> until when (epoch) its gate holds, where Slurm does not show that.
    holds_until: Mapping[int, float] = field(default_factory=dict)
    #: Slurm's reservations, now and to come.
    reserved: Sequence[Reservation] = ()
    #: The jobs that had a place in line at the last look, and since when (epoch), by their id.
    waits_since: Mapping[int, float] = field(default_factory=dict)
    #: When that look began (epoch).
    last_look: float = 0.0
    #: What is known of limits of Slurm's.
    limits: KnownLimits = NOTHING
    #: How long Slurm takes to look at a job (seconds).
    look_s: int = LOOK_S
    settings: Settings = NO_SETTINGS


@dataclass(frozen=True, slots=True)
class JobRelease:
    """What lets a job start: one, an array's task, or the components of a heterogeneous one."""

    #: The jobs that start, by what updates call them.
    jobs: Mapping[str, QueuedJob]
    #: Updates by the name of the job. Slurm must take each of them before the next is sent.
    steps: tuple[tuple[str, JobUpdate], ...]
    #: What the jobs then hold.
    holds: tuple[Hold, ...]
    #: Updates for when Slurm refused one of the steps.
    undo: tuple[tuple[str, JobUpdate], ...] = ()


class Renewal(NamedTuple):
    """A gate that is to be shut for longer."""

    #: When (epoch) it opens now; 0 where that is not known.
    until: float
    #: What an update calls the job.
    name: str
    job_id: int
    #: For how many leases from now on.
    leases: int


@dataclass(slots=True)
class GatePlan(LoanPlan):
    """What is to be done about gates."""

    releases: list[JobRelease] = field(default_factory=list)
    #: Repairs, notes, and jobs left to Slurm, by the name of the job.
    updates: list[tuple[str, JobUpdate]] = field(default_factory=list)
    #: Whom no release may delay.
    line: WaitingLine = field(default_factory=WaitingLine)
    #: Gates that are to be shut for longer, those that open first in front.
    renewals: list[Renewal] = field(default_factory=list)
    #: The gates that were, or that are open now: until when they hold (epoch), by job id.
    renewed: dict[int, int] = field(default_factory=dict)
    #: What ran into limits of Slurm's since the last plan.
    tries: Tries = field(default_factory=lambda: Tries(0))
    #: How many jobs were in which state.
    seen: Counter[str] = field(default_factory=Counter)

    def take(self, hold: Hold) -> None:
        """A job is about to hold this."""
        LoanPlan.take(self, hold)
        self.line = self.line.with_hold(hold)

    @property
    def changes_slurm(self) -> bool:
        """Is anything to be done, but for gates that are renewed?"""
        gates = self.releases or self.updates
        return bool(gates or self.offers or self.splits or self.broken or self.refusals)

    @property
    def released(self) -> list[str]:
        """The names of the jobs that are let go."""
        return [name for release in self.releases for name in release.jobs]
