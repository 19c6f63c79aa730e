"""The queue's order, and EASY backfill: who may pass the first waiting jobs without delaying them.

Lifka, "The ANL/IBM SP Scheduling System" (JSSPP 1995): only the first waiting job has a
reservation, at the earliest time that the declared walltimes allow. Here each job has one but those
whose nodes are all among the nodes of one that has: who waits for other nodes, or for more of them,
is not to be passed for ever either.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurm_plugin.queue.candidates import Need, serves
from slurm_plugin.queue.capacity import Hold, Node, Nodes, freed, with_hold
from slurm_plugin.queue.slurms_choice import Share, is_enough, least_of, share_of, usable
from slurm_plugin.slurm.interface import QueuedJob

#: What Slurm takes a job without a time limit to run (seconds).
ENDLESS_S = 365 * 86400.0
#: Waiting jobs that have a place in line: of one user, and of all users.
MOST_OF_ONE, MOST_IN_LINE = 4, 32
#: The same of needs that were looked at for a place.
MOST_NEEDS_OF_ONE, MOST_NEEDS = 100, 1000


Place = tuple[int, int, int, int, float, int]


def in_order(jobs: Iterable[QueuedJob], tiers: Mapping[str, int]) -> list[QueuedJob]:
    """Highest partition tier first, then priority, then who came first.

    `tiers` are the partitions' PriorityTier; of several partitions the highest counts.
    """
    return sorted(jobs, key=lambda job: place_of(job, tiers))


def place_of(job: QueuedJob, tiers: Mapping[str, int]) -> Place:
    """What the queue is sorted by: the smaller one goes first."""
    return place_at(job, max(tiers.get(name, 1) for name in job.partition.split(",")))


def place_at(job: QueuedJob, tier: int) -> Place:
    """The same for a job's turn at one of its partitions' tiers.

    Slurm sorts a record for each job and partition by that partition's tier (sort_job_queue2), and
    tasks that are records of their own before the rest of their array, whose number is lower.
    """
    whole = job.array_id or job.job_id
    rest = math.inf if job.job_id == whole else 0
    return -tier, -job.priority, job.submit, whole, rest, job.job_id


@dataclass(frozen=True, slots=True)
class InLine:
    """A job that waits for room, and when it could start at the earliest by the limits."""

    need: Need
    #: The nodes that it may use.
    names: frozenset[str]
    #: When (epoch), and those of these nodes on which it has room then, as they are then.
    start: float
    room: Nodes
    #: Its id; 0 where it is not known or not asked for.
    job: int = 0
    #: Its user; -1 where that is not known.
    uid: int = -1
    #: What each of the nodes gives it then, where Slurm may spread it over several.
    shares: Mapping[str, Share] = field(default_factory=dict)

    def is_delayed_by(self, hold: Hold) -> bool:
        """Would it start later if somebody held this from now on?"""
        if hold.end <= self.start or self.names.isdisjoint(hold.gpus):
            return False
        touched, left = self._after(hold)
        if self.need.spread:
            return not is_enough(self.need, self._shares_after(touched, left))
        return len(self.room) - len(touched) + len(left) < self.need.nodes

    def with_hold(self, hold: Hold) -> InLine:
        """The same once the hold is taken."""
        if hold.end <= self.start:
            return self
        touched, left = self._after(hold)
        if not touched:
            return self
        rest = {name: node for name, node in self.room.items() if name not in touched}
        shares = self._shares_after(touched, left)
        return replace(self, room={**rest, **left}, shares=shares)

    def _shares_after(self, touched: Nodes, left: Nodes) -> Mapping[str, Share]:
        """What all nodes give once those that are touched are as they are left."""
        if not self.need.spread:
            return self.shares
        rest = {name: share for name, share in self.shares.items() if name not in touched}
        return rest | {name: share_of(self.need, node) for name, node in left.items()}

    def _after(self, hold: Hold) -> tuple[Nodes, Nodes]:
        """The nodes of its room that the hold is on; and as they are with it, where room is left.

        The others are left alone: there may be hundreds, and as many jobs in line.
        """
        touched = {name: self.room[name] for name in hold.gpus if name in self.room}
        after, one = with_hold(touched, hold), least_of(self.need)
        return touched, {name: node for name, node in after.items() if serves(one, node)}


@dataclass(frozen=True, slots=True)
class WaitingLine:
    """The jobs that must not be delayed: of each set of nodes the first that waits for it.

    Sets may overlap. Each start is reckoned as if the others in line were not there. Each user has
    a share of the places, so that nobody's jobs can take all of them.
    """

    waits: tuple[InLine, ...] = ()
    #: What gets no place any more: needs that nothing can ever serve, and what may use no other
    #: nodes than somebody in line. Most jobs are like one that waits already.
    known: frozenset[object] = frozenset()
    #: How many needs were looked at, by user.
    looked_at: Mapping[int, int] = field(default_factory=dict)

    def with_job(
        self,
        need: Need,
        nodes: Nodes,
        holds: Sequence[Hold],
        now: float,
        job: int = 0,
        uid: int = -1,
    ) -> WaitingLine:
        """The same behind which one more job waits, which cannot start now.

        It gets a place if it can ever start, unless one in line may use all nodes that it may use.
        """
        kind = _kind(need)
        if self._is_full(uid) or kind in self.known or need in self.known:
            return self
        looked_at = {**self.looked_at, uid: self.looked_at.get(uid, 0) + 1}
        names = usable(need, nodes)
        if any(names <= one.names for one in self.waits):
            return WaitingLine(self.waits, self.known | {kind}, looked_at)
        one = _in_line(need, names, nodes, holds, now)
        if one is None:
            return WaitingLine(self.waits, self.known | {need}, looked_at)
        waits = (*self.waits, replace(one, job=job, uid=uid))
        return WaitingLine(waits, self.known | {kind}, looked_at)

    def _is_full(self, uid: int) -> bool:
        """Are all places or needs given out, or the user's share of them?"""
        return (
            self.looked_at.get(uid, 0) >= MOST_NEEDS_OF_ONE
            or len(self.waits) >= MOST_IN_LINE
            or sum(one.uid == uid for one in self.waits) >= MOST_OF_ONE
            or sum(self.looked_at.values()) >= MOST_NEEDS
        )

    def with_hold(self, hold: Hold) -> WaitingLine:
        """The same once the hold is taken."""
        return replace(self, waits=tuple(one.with_hold(hold) for one in self.waits))

    def delayed_by(self, hold: Hold) -> InLine | None:
        """The first of them that would start later if somebody held this from now on."""
        return next((one for one in self.waits if one.is_delayed_by(hold)), None)

    def is_delayed_by(self, hold: Hold) -> bool:
        """Would any of them start later if somebody held this from now on?"""
        return self.delayed_by(hold) is not None


def _kind(need: Need) -> tuple[object, ...]:
    """Equal for needs that may use the same nodes: all that `may_use` asks about."""
    need = least_of(need)
    is_wider = need.nodes > len(need.req_nodes)
    whose = need.partitions, need.features, need.req_nodes, need.exc_nodes
    return *whose, is_wider, need.gpus, need.types


def in_line(need: Need, nodes: Nodes, holds: Sequence[Hold], now: float) -> InLine | None:
    """When the job could start as the holds, all taken in `nodes`, end by their limits.

    None where it never could. A job that overran its limit is about to end: its hold counts as
    ending `now`.
    """
    return _in_line(need, usable(need, nodes), nodes, holds, now)


def _in_line(
    need: Need, names: frozenset[str], nodes: Nodes, holds: Iterable[Hold], now: float
) -> InLine | None:
    if need.nodes == 1 and len(need.req_nodes) > 1:
        return None
    ends: dict[str, list[tuple[float, Hold]]] = {}
    for hold in holds:
        end = min(max(hold.end, now), now + ENDLESS_S)
        for name in filter(names.__contains__, hold.gpus):
            ends.setdefault(name, []).append((end, hold))
    one = least_of(need)
    times = {name: _room_from(one, nodes[name], ends.get(name, []), now) for name in names}
    times = {name: time for name, time in times.items() if time < math.inf}
    if need.spread:
        start = _spread_from(need, {name: nodes[name] for name in times}, ends, now)
    else:
        start = sorted(times.values())[need.nodes - 1] if len(times) >= need.nodes else math.inf
    if start == math.inf:
        return None
    soon = (name for name, time in times.items() if time <= start)
    room = {name: _at(start, nodes[name], ends.get(name, [])) for name in soon}
    shares = {name: share_of(need, node) for name, node in room.items()} if need.spread else {}
    return InLine(need, names, start, room, shares=shares)


def _at(time: float, node: Node, ends: Iterable[tuple[float, Hold]]) -> Node:
    """The node at that time (epoch), as these holds end."""
    over = [hold for end, hold in ends if end <= time]
    return freed(node, over) if over else node


def _spread_from(
    need: Need, nodes: Nodes, ends: Mapping[str, list[tuple[float, Hold]]], now: float
) -> float:
    """From when on (epoch) these nodes give enough to a job that Slurm may spread; inf: never."""
    shares = {name: share_of(need, node) for name, node in nodes.items()}
    times = sorted({(end, name) for name in nodes for end, _ in ends.get(name, [])})
    for end, name in [(now, ""), *times]:
        if name:
            shares[name] = share_of(need, _at(end, nodes[name], ends[name]))
        if is_enough(need, shares):
            return end
    return math.inf


def _room_from(need: Need, node: Node, ends: list[tuple[float, Hold]], now: float) -> float:
    """From when on (epoch) a node of the job has room for it, as these holds end; inf: never."""
    if serves(need, node):
        return now
    ends.sort(key=lambda end: end[0])
    free = node.free
    for i, (end, hold) in enumerate(ends, 1):
        # More is free after each end; without enough GPUs nothing else matters.
        free |= hold.gpus[node.name]
        if free.bit_count() < need.gpus:
            continue
        if serves(need, freed(node, [one for _, one in ends[:i]])):
            return end
    return math.inf


def earliest_start(need: Need, nodes: Nodes, holds: Sequence[Hold], now: float) -> float:
    """The time (epoch) alone; inf: not by any limit that is known."""
    one = in_line(need, nodes, holds, now)
    return one.start if one and one.start < now + ENDLESS_S else math.inf


def delays(
    first: Need, nodes: Nodes, holds: Sequence[Hold], new: Sequence[Hold], now: float
) -> bool:
    """Would the holds `new`, which are not in `nodes` yet, make the first job start later?"""
    one = in_line(first, nodes, holds, now)
    for hold in new:
        if one is not None and one.is_delayed_by(hold):
            return True
        one = one and one.with_hold(hold)
    return False
