"""Notices that somebody set the clock: times that were remembered are then worth nothing.

What the engine remembers of Slurm is in Slurm's own times, by the wall clock. After a step of
that clock a promise of a moment would last for an hour, or the settings would not be read
again; forgetting costs no more than a restart does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

#: The event that listeners get.
CLOCK_SET = "clock set"
LOOK_S = 1.0
#: The least step between two looks. A clock that is only corrected drifts by far less.
STEP_S = 2.0


def _ahead_s() -> float:
    """How far the wall clock is ahead of one that nobody sets."""
    return time.time() - time.monotonic()


class ClockWatch:
    """Calls `say` at every step of the wall clock."""

    def __init__(self, say: Callable[[str], None], ahead_s: Callable[[], float] = _ahead_s) -> None:
        self._say = say
        self._ahead_s = ahead_s
        self._was = ahead_s()

    def look(self) -> None:
        """Was the clock set since the last look?"""
        now = self._ahead_s()
        step_s, self._was = now - self._was, now
        if abs(step_s) > STEP_S:
            way = "forward" if step_s > 0 else "back"
            logger.warning("the clock was set %s by %.0f s; Slurm is read anew", way, abs(step_s))
            self._say(CLOCK_SET)

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()
