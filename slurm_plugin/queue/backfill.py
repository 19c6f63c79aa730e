"""The queue's order, and EASY backfill: who may pass the first waiting job without delaying it.

Lifka, "The ANL/IBM SP Scheduling System" (JSSPP 1995): only the first waiting job has a
reservation, at the earliest time that the declared walltimes allow.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile

from slurm_plugin.queue.candidates import Need, can_start
from slurm_plugin.queue.capacity import Hold, Nodes, with_hold, without_holds
from slurm_plugin.slurm.interface import QueuedJob


def in_order(jobs: Iterable[QueuedJob], tiers: Mapping[str, int]) -> list[QueuedJob]:
    """Highest partition tier first, then priority, then who came first.

    `tiers` are the partitions' PriorityTier; of several partitions the highest counts.
    """
    return sorted(jobs, key=lambda job: place_of(job, tiers))


def place_of(job: QueuedJob, tiers: Mapping[str, int]) -> tuple[int, int, int, int]:
    """What the queue is sorted by: the smaller one goes first."""
    tier = max(tiers.get(name, 1) for name in job.partition.split(","))
    return -tier, -job.priority, job.submit, job.job_id


def earliest_start(need: Need, nodes: Nodes, holds: Sequence[Hold], now: float) -> float:
    """When the job could start as the holds, all taken in `nodes`, end by their limits; inf: never.

    A job that overran its limit is about to end: its hold counts as ending `now`.
    """
    if can_start(need, nodes):
        return now
    ending = sorted((hold for hold in holds if hold.end < math.inf), key=lambda hold: hold.end)
    # More is free after each end, so the first one that suffices is found by halves.
    last = bisect_left(ending, True, key=_by_then(need, nodes, ending))
    return max(ending[last].end, now) if last < len(ending) else math.inf


def _by_then(need: Need, nodes: Nodes, ending: Sequence[Hold]) -> Callable[[Hold], bool]:
    """Whether the job could start once a hold and all that end no later are given back."""

    def could_start(last: Hold) -> bool:
        over = takewhile(lambda hold: hold.end <= last.end, ending)
        return can_start(need, without_holds(nodes, over))

    return could_start


def delays(
    first: Need, nodes: Nodes, holds: Sequence[Hold], new: Sequence[Hold], now: float
) -> bool:
    """Would the holds `new`, which are not in `nodes` yet, make the first job start later?"""
    after = nodes
    for hold in new:
        after = with_hold(after, hold)
    without = earliest_start(first, nodes, holds, now)
    return earliest_start(first, after, [*holds, *new], now) > without
