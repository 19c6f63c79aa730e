"""EASY backfill: a job may pass the first one that waits only where it does not delay it.

Lifka, "The ANL/IBM SP Scheduling System" (JSSPP 1995): only the first waiting job has a
reservation, at the earliest time that the declared walltimes allow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from slurm_plugin.queue.candidates import Need, groups
from slurm_plugin.queue.capacity import Hold, Room, without_hold


def earliest_start(need: Need, room: Room, holds: Sequence[Hold], now: float) -> float:
    """When the job could start as the holds, all in `room`, end by their limits; inf: never.

    A job that overran its limit is about to end: its hold counts as ending `now`.
    """
    if groups(need, room):
        return now
    ending = sorted((hold for hold in holds if hold.end < math.inf), key=lambda hold: hold.end)
    ends: float
    for ends, together in groupby(ending, key=lambda hold: hold.end):
        for hold in together:
            room = without_hold(room, hold)
        if groups(need, room):
            return max(ends, now)
    return math.inf


def delays(
    first: Need, room: Room, holds: Sequence[Hold], new: Hold, room_after: Room, now: float
) -> bool:
    """Would `new` (already in `room_after`, not in `room`) make the first job start later?"""
    without = earliest_start(first, room, holds, now)
    return earliest_start(first, room_after, [*holds, new], now) > without
