"""One look at the queue: which gates open now, which are renewed, what is repaired.

Pure: a snapshot and the time in, actions out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_plugin.slots import backfill, bracket, change, demand
from slurm_plugin.slots.candidates import Group, Need, groups
from slurm_plugin.slots.order import in_order
from slurm_plugin.slots.room import Hold, Room, held_by, with_hold
from slurm_plugin.slots.want import Want
from slurm_plugin.slurm.gres_text import counts, index_list
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob

#: Longest pause after a release that came to nothing, in seconds.
LONGEST_PAUSE_S = 300
#: Reasons with which a job is about to start; with others Slurm keeps it for itself.
ABOUT_TO_START = frozenset(("", "None", "BeginTime", "Resources", "Priority", "Cleaning"))
#: A reason is Slurm's of its last scheduling: so old it may be of before the release.
STALE_REASON_S = 2


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
    (Slurm refused an update), `holds_until` when the gates open that no field of Slurm tells.
    """

    now: int
    lease_s: int
    grace_s: int
    tiers: Mapping[str, int] = field(default_factory=dict)
    paused: Mapping[str, float] = field(default_factory=dict)
    holds_until: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Release:
    """The updates that let a job (or an array's task) start, and what it then holds."""

    name: str
    job: QueuedJob
    steps: tuple[JobUpdate, ...]
    hold: Hold


@dataclass(slots=True)
class Plan:
    """What to do, and what is then taken: `added` are the holds of jobs about to start.

    `updates` are repairs, notes, and jobs left to Slurm. `again`: look again soon.
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

    def take(self, hold: Hold) -> None:
        """A job is about to hold this."""
        self.room = with_hold(self.room, hold)
        self.holds.append(hold)
        self.added.append(hold)


def plan(
    queue: Iterable[QueuedJob],
    wants: Mapping[int, Want],
    room: Room,
    terms: Terms,
    choose: Choose,
    promised: Sequence[Hold] = (),
) -> Plan:
    """Everything to be done now. `room` is Slurm's own figures, without what is `promised`."""
    jobs = list(queue)
    made = Plan(room, [held_by(job, terms.now) for job in jobs if job.state != "PENDING"])
    for hold in promised:
        made.room = with_hold(made.room, hold)
        made.holds.append(hold)
    return _Look(made, wants, terms, choose).over(jobs)


def slots_hold(job: QueuedJob, need: Need, room: Room, end: float) -> Hold:
    """What a placed job that has not started is to get, from its own request in Slurm."""
    types = counts(job.tres_per_node) or counts(job.tres_per_job)
    names = demand.node_names(job.req_nodes)
    masks = {}
    for name in names & room.keys():
        slots = room[name].slots
        mask = sum(1 << i for i, slot in enumerate(slots) if slot in types)
        masks[name] = (1 << len(slots)) - 1 if mask and need.exclusive else mask
    return Hold(masks, need.cpus, need.memory_mb, end)


def tasks_of(text: str) -> list[int]:
    """The tasks of an array in Slurm's words: `2-4,8`, `0-6:2`, with or without `%3`."""
    found = []
    for part in text.partition("%")[0].split(","):
        span, _, step = part.partition(":")
        found += index_list(span)[:: int(step or 1)] if span else []
    return found


class _Look:
    """The state of one plan in the making."""

    def __init__(self, made: Plan, wants: Mapping[int, Want], terms: Terms, choose: Choose) -> None:
        self._made = made
        self._wants = wants
        self._terms = terms
        self._choose = choose
        # Room only gets less during a look: what did not fit will not.
        self._no_room: set[Need] = set()
        self._first_start: float | None = None
        self._active: Counter[int] = Counter()
        self._throttle: dict[int, int] = {}

    def over(self, jobs: Sequence[QueuedJob]) -> Plan:
        """All jobs: first what is placed already, then gates in Slurm's order."""
        pending = [job for job in jobs if job.state == "PENDING"]
        self._active.update(j.array_id for j in jobs if j.array_id and j.state != "PENDING")
        for job in jobs:
            if job.array_id and job.throttle:
                self._throttle[job.array_id] = job.throttle
        gated = []
        for job in in_order(pending, self._terms.tiers):
            want = self._wants.get(job.job_id)
            if want is None:
                continue
            self._made.seen[want.kept.state] += 1
            if want.problem:
                self._leave(job.name, job, want, want.problem)
            elif want.kept.state == "placed":
                self._placed(job, want)
            else:
                gated.append((job, want))
        for job, want in gated:
            if not self._open(job, want):
                self._renew(job, want)
        return self._made

    def _leave(self, name: str, job: QueuedJob, want: Want, why: str) -> None:
        if self._terms.paused.get(name, 0) <= self._terms.now:
            update = change.give_back(job, want.kept, f"Slurm's own choice: {why}")
            self._made.updates.append((name, update))

    def _placed(self, job: QueuedJob, want: Want) -> None:
        """A released job that did not start: keep its slots, after the grace gate it again."""
        now, need = self._terms.now, want.need
        assert need is not None
        hold = slots_hold(job, need, self._made.room, self._end(job))
        is_exact = len(hold.gpus) == need.nodes and all(
            mask.bit_count() >= need.gpus for mask in hold.gpus.values()
        )
        age = now - int(want.kept.get("at") or job.submit)
        comes = job.reason in ABOUT_TO_START or age < STALE_REASON_S
        if is_exact and comes and not job.held and age <= self._terms.grace_s:
            self._active[job.array_id] += 1
            self._made.take(hold)
            return
        pause = min(LONGEST_PAUSE_S, 2 ** change.tries(want.kept)) if is_exact else 0
        why = "released, and not started by Slurm"
        if job.reason not in ("", "None"):
            why += f" ({job.reason})"
        begin = now + self._terms.lease_s
        update = change.regate(job, want.kept, begin, now + pause, why)
        self._made.updates.append((job.name, update))
        self._made.seen["regated"] += 1

    def _is_ready(self, job: QueuedJob, want: Want) -> bool:
        """Does only our gate keep the job?"""
        now = self._terms.now
        return (
            not job.held
            and not job.depends
            # An array's limit is kept by our own count: Slurm's word may be an old one.
            and (job.reason in ABOUT_TO_START or job.reason == "JobArrayTaskLimit")
            and want.own_begin <= now
            and int(want.kept.get("retry") or 0) <= now
            and self._terms.paused.get(job.name, 0) <= now
        )

    def _open(self, job: QueuedJob, want: Want) -> bool:
        """Release the job, or as many of the array's tasks as there is room for.

        False: it stays behind its gate.
        """
        if not self._is_ready(job, want):
            return False
        if job.tasks <= 1:
            return self._open_one(job.name, job, want)
        released = False
        for task in tasks_of(job.task):
            most = self._throttle.get(job.array_id)
            if most and self._active[job.array_id] >= most:
                break
            if not self._open_one(f"{job.array_id}_{task}", job, want):
                break
            self._active[job.array_id] += 1
            released = True
        # Its name covers the released tasks until Slurm has split them off.
        self._made.again |= released
        return released

    def _open_one(self, name: str, job: QueuedJob, want: Want) -> bool:
        made, need = self._made, want.need
        assert need is not None
        found = [] if need in self._no_room else groups(need, made.room)
        if not found:
            self._no_room.add(need)
            made.first = made.first or need
            return False
        choice = self._choose(name, job, want, found)
        if isinstance(choice, Left):
            self._leave(job.name, job, want, choice.note)
            return job.tasks <= 1
        if isinstance(choice, Waits):
            self._tell(job, want, choice.note)
            return False
        group, mask = choice.group, choice.mask
        taken = (1 << len(group.slots)) - 1 if need.exclusive else mask
        hold = need.hold(group.names, taken, self._end(job))
        if self._delays_first(hold):
            return False
        made.take(hold)
        self._first_start = None
        now = self._terms.now
        steps = change.release(job, want.kept, need, group, mask, now, choice.note)
        made.releases.append(Release(name, job, steps, hold))
        return True

    def _delays_first(self, hold: Hold) -> bool:
        made, now = self._made, self._terms.now
        if made.first is None:
            return False
        if self._first_start is None:
            self._first_start = backfill.earliest_start(made.first, made.room, made.holds, now)
        after = with_hold(made.room, hold)
        start = backfill.earliest_start(made.first, after, [*made.holds, hold], now)
        return start > self._first_start

    def _tell(self, job: QueuedJob, want: Want, note: str) -> None:
        """Write down why the job waits, once for every new reason (figures do not count)."""
        before = bracket.note_in(job.admin_comment)
        if not want.kept.get("since") or _without_figures(before) != _without_figures(note):
            update = change.waiting(job, want.kept, self._terms.now, note)
            self._made.updates.append((job.name, update))

    def _renew(self, job: QueuedJob, want: Want) -> None:
        """Every gate is shut again when half of its lease is over."""
        now, lease_s = self._terms.now, self._terms.lease_s
        if want.own_begin - now >= lease_s:
            return
        known = job.eligible if job.reason == "BeginTime" else 0
        until = max(known, self._terms.holds_until.get(job.job_id, 0))
        if until - now < lease_s / 2:
            self._made.renew.append(job.name)
            self._made.renewed.append(job.job_id)

    def _end(self, job: QueuedJob) -> float:
        return self._terms.now + job.time_limit_s if job.time_limit_s else float("inf")


def _without_figures(text: str) -> str:
    return re.sub(r"[\d.]+", "#", text)
