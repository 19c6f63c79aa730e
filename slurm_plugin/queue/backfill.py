"""The queue's order, and EASY backfill: who may pass the first waiting job without delaying it.

Lifka, "The ANL/IBM SP Scheduling System" (JSSPP 1995): only the first waiting job has a
reservation, at the earliest time that the declared walltimes allow. Here the first one of each set
of nodes has one: who waits for other nodes is not to be passed for ever either.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_plugin.queue.candidates import Need, can_start, may_use
from slurm_plugin.queue.capacity import Hold, Nodes, with_hold, without_holds
from slurm_plugin.slurm.interface import QueuedJob

#: What Slurm takes a job without a time limit to run (seconds).
ENDLESS_S = 365 * 86400.0
#: Waiting jobs that have a place in line, and needs that were looked at for one.
MOST_IN_LINE, MOST_NEEDS = 32, 1000


def in_order(jobs: Iterable[QueuedJob], tiers: Mapping[str, int]) -> list[QueuedJob]:
    """Highest partition tier first, then priority, then who came first.

    `tiers` are the partitions' PriorityTier; of several partitions the highest counts.
    """
    return sorted(jobs, key=lambda job: place_of(job, tiers))


def place_of(job: QueuedJob, tiers: Mapping[str, int]) -> tuple[int, int, int, int]:
    """What the queue is sorted by: the smaller one goes first."""
    tier = max(tiers.get(name, 1) for name in job.partition.split(","))
    return -tier, -job.priority, job.submit, job.job_id


@dataclass(frozen=True, slots=True)
class InLine:
    """A job that waits for room, and when it could start at the earliest by the limits."""

    need: Need
    #: The nodes that it may use.
    names: frozenset[str]
    #: When (epoch), and what is free on these nodes then.
    start: float
    nodes: Nodes
    #: Its id; 0 where it is not known or not asked for.
    job: int = 0

    def is_delayed_by(self, hold: Hold) -> bool:
        """Would it start later if somebody held this from now on?"""
        if hold.end <= self.start or self.names.isdisjoint(hold.gpus):
            return False
        return not can_start(self.need, with_hold(self.nodes, hold))

    def with_hold(self, hold: Hold) -> InLine:
        """The same once the hold is taken."""
        if hold.end <= self.start or self.names.isdisjoint(hold.gpus):
            return self
        return replace(self, nodes=with_hold(self.nodes, hold))


@dataclass(frozen=True, slots=True)
class Line:
    """The jobs that must not be delayed: of each set of nodes the first that waits for it."""

    waits: tuple[InLine, ...] = ()
    #: The needs that were looked at: most jobs are like one that waits already.
    known: frozenset[Need] = frozenset()

    def with_job(
        self, need: Need, nodes: Nodes, holds: Sequence[Hold], now: float, job: int = 0
    ) -> Line:
        """The same behind which one more job waits, which cannot start now.

        It gets a place if nobody before it waits for any of its nodes, and if it can ever start.
        """
        if need in self.known or len(self.waits) >= MOST_IN_LINE or len(self.known) >= MOST_NEEDS:
            return self
        known = self.known | {need}
        names = frozenset(name for name, node in nodes.items() if may_use(need, node))
        if any(not names.isdisjoint(one.names) for one in self.waits):
            return Line(self.waits, known)
        one = _in_line(need, names, nodes, holds, now)
        return Line((*self.waits, replace(one, job=job)) if one else self.waits, known)

    def with_hold(self, hold: Hold) -> Line:
        """The same once the hold is taken."""
        return Line(tuple(one.with_hold(hold) for one in self.waits), self.known)

    def delayed_by(self, hold: Hold) -> InLine | None:
        """The first of them that would start later if somebody held this from now on."""
        return next((one for one in self.waits if one.is_delayed_by(hold)), None)

    def is_delayed_by(self, hold: Hold) -> bool:
        """Would any of them?"""
        return self.delayed_by(hold) is not None


def in_line(need: Need, nodes: Nodes, holds: Sequence[Hold], now: float) -> InLine | None:
    """When the job could start as the holds, all taken in `nodes`, end by their limits.

    None where it never could. A job that overran its limit is about to end: its hold counts as
    ending `now`.
    """
    names = frozenset(name for name, node in nodes.items() if may_use(need, node))
    return _in_line(need, names, nodes, holds, now)


def _in_line(
    need: Need, names: frozenset[str], nodes: Nodes, holds: Iterable[Hold], now: float
) -> InLine | None:
    room = {name: nodes[name] for name in names}
    if can_start(need, room):
        return InLine(need, names, now, room)
    ends = [(min(max(hold.end, now), now + ENDLESS_S), hold) for hold in holds
            if not names.isdisjoint(hold.gpus)]  # fmt: skip
    ends.sort(key=lambda end: end[0])
    # More is free after each end, so the first one that suffices is found by halves: there is no
    # room after `low` of them, and there is after `high`.
    low, high = 0, len(ends)
    then = without_holds(room, (hold for _, hold in ends))
    if not can_start(need, then):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        after = without_holds(room, (hold for _, hold in ends[low:middle]))
        if can_start(need, after):
            high, then = middle, after
        else:
            low, room = middle, after
    start = ends[high - 1][0]
    also = [hold for end, hold in ends[high:] if end <= start]
    return InLine(need, names, start, without_holds(then, also) if also else then)


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
