"""One look at the queue: which gates open now, which are renewed, what is repaired.

Pure: a snapshot and the time in, actions out. Jobs of one component and no array so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_plugin.protocol import Submit
from slurm_plugin.slots import backfill, bracket, change, demand
from slurm_plugin.slots.bracket import Bracket
from slurm_plugin.slots.candidates import Group, Need, groups
from slurm_plugin.slots.features import Unsupported
from slurm_plugin.slots.order import in_order
from slurm_plugin.slots.room import Hold, Room, emptied, held_by, with_hold
from slurm_plugin.slurm.gres_text import counts
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob

#: What a policy says about one job: a group and its slots, WAIT, or None for Slurm's own choice.
WAIT = "wait"
Choose = Callable[[QueuedJob, Submit, Need, Sequence[Group]], tuple[Group, int] | str | None]


@dataclass(frozen=True, slots=True)
class Clock:
    """The time (epoch), how long a gate holds, how long a released job may take to start."""

    now: int
    lease_s: int
    grace_s: int


@dataclass(slots=True)
class Plan:
    """What to do, and what is then taken: `added` are the holds of jobs about to start."""

    room: Room
    holds: list[Hold] = field(default_factory=list)
    added: list[Hold] = field(default_factory=list)
    first: Need | None = None
    releases: list[tuple[str, JobUpdate]] = field(default_factory=list)
    restores: list[tuple[str, JobUpdate]] = field(default_factory=list)
    renew: list[str] = field(default_factory=list)

    def take(self, hold: Hold) -> None:
        """A job is about to hold this."""
        self.room = with_hold(self.room, hold)
        self.holds.append(hold)
        self.added.append(hold)


def slots_hold(job: QueuedJob, need: Need, room: Room, end: float) -> Hold:
    """What a placed job that has not started is to get, from its own request in Slurm."""
    types = counts(job.tres_per_node) or counts(job.tres_per_job)
    names = demand.node_names(job.req_nodes)
    masks = {
        name: sum(1 << i for i, slot in enumerate(room[name].slots) if slot in types)
        for name in names
        if name in room
    }
    return Hold(masks, need.cpus, need.memory_mb, end)


def is_ready(job: QueuedJob, kept: Bracket, now: int) -> bool:
    """Does only our gate keep the job?"""
    own = int(kept.get("begin") or 0)
    return (
        not job.held and not job.depends and job.reason in ("BeginTime", "None", "") and own <= now
    )


def is_simple(job: QueuedJob) -> bool:
    """One component, no array."""
    return not job.array_id and not job.het_id


def plan(
    queue: Iterable[QueuedJob],
    room: Room,
    tiers: Mapping[str, int],
    clock: Clock,
    choose: Choose,
    promised: Sequence[Hold] = (),
) -> Plan:
    """Everything to be done now. `room` is Slurm's own figures, without what is `promised`."""
    jobs = list(queue)
    made = Plan(room, [held_by(job, clock.now) for job in jobs if job.state != "PENDING"])
    for hold in promised:
        made.room = with_hold(made.room, hold)
        made.holds.append(hold)
    gated = []
    for job in in_order((job for job in jobs if job.state == "PENDING" and is_simple(job)), tiers):
        kept = bracket.read(job.admin_comment)
        if kept is None:
            continue
        try:
            asked = change.submit_of(job, kept)
            need = demand.need_of(asked, room, job.partition)
            can_ever = bool(groups(need, emptied(room)))
        except (demand.Unplaceable, Unsupported, ValueError):
            can_ever = False
        if not can_ever:
            made.restores.append((job.name, change.restore(job, kept, None)))
        elif kept.state == "placed":
            _placed(made, job, kept, need, clock)
        else:
            gated.append((job, kept, asked, need))
    for job, kept, asked, need in gated:
        opened = is_ready(job, kept, clock.now) and _open(
            made, job, kept, asked, need, clock, choose
        )
        if not opened and job.eligible - clock.now < clock.lease_s / 2:
            made.renew.append(job.name)
    return made


def _placed(made: Plan, job: QueuedJob, kept: Bracket, need: Need, clock: Clock) -> None:
    """A released job that did not start: keep its slots, after the grace gate it again."""
    hold = slots_hold(job, need, made.room, _end(job, clock))
    exact = len(hold.gpus) == need.nodes and all(
        mask.bit_count() >= need.gpus for mask in hold.gpus.values()
    )
    since = int(kept.get("at") or job.submit)
    if exact and clock.now - since <= clock.grace_s:
        made.take(hold)
    else:
        made.restores.append((job.name, change.restore(job, kept, clock.now + clock.lease_s)))


def _open(
    made: Plan,
    job: QueuedJob,
    kept: Bracket,
    asked: Submit,
    need: Need,
    clock: Clock,
    choose: Choose,
) -> bool:
    """Release the job if it fits and delays nobody; False: it stays behind its gate."""
    found = groups(need, made.room)
    choice = choose(job, asked, need, found) if found else WAIT
    if choice is None:
        made.restores.append((job.name, change.restore(job, kept, None)))
        return True
    if isinstance(choice, str):
        made.first = made.first or need
        return False
    group, mask = choice
    taken = (1 << len(group.slots)) - 1 if need.exclusive else mask
    hold = need.hold(group.names, taken, _end(job, clock))
    after = with_hold(made.room, hold)
    if made.first and backfill.delays(made.first, made.room, made.holds, hold, after, clock.now):
        return False
    made.take(hold)
    update = change.release(job, kept, need, group, mask, clock.now)
    made.releases.append((job.name, update))
    return True


def _end(job: QueuedJob, clock: Clock) -> float:
    return clock.now + job.time_limit_s if job.time_limit_s else float("inf")
