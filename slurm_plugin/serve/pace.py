"""When the next look at Slurm's queue is due: at once when a job ended, soon after a submit, and
now and then.

Times are those of one monotonic clock, in seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

#: A submit is answered before its job is in the queue.
SUBMIT_S = 0.05
#: So much of the time at most is spent looking; and so much because of submits that can wait:
#: a burst of them must not pay for a reading of the growing queue each time.
BUSY_SHARE, CALM_SHARE = 0.25, 0.02
#: A job that ended holds its GPUs for a moment more: these looks follow.
ECHOES_S = (0.15, 0.5, 1.5)


class Pace:
    """`due` is when to look, never before `not_before`, unless something is heard meanwhile."""

    def __init__(self) -> None:
        self.due = float("inf")
        self.not_before = 0.0
        self._calm_at = 0.0
        self._echoes: list[float] = []
        self._sooner = asyncio.Event()

    def heard(self, verb: str, is_awaited: bool = True) -> None:
        """Something happened now: a job was submitted or ended, or anything else (another verb)."""
        now = time.monotonic()
        if verb == "submit":
            self.submitted(now, is_awaited)
        elif verb == "ended":
            self.ended(now)
        else:
            self.wake(now)

    def submitted(self, now: float, is_awaited: bool) -> None:
        """A job is on its way; `is_awaited`: it starts now, or as soon as it has been looked at."""
        self.wake(max(now + SUBMIT_S, 0.0 if is_awaited else self._calm_at))

    def ended(self, now: float) -> None:
        """A job ended."""
        self._echoes = [now + later for later in ECHOES_S]
        self.wake(now)

    def wake(self, due: float) -> None:
        """Look then, or sooner."""
        if due < self.due:
            self.due = due
            self._sooner.set()

    def begin(self) -> None:
        """A look begins: what is heard from here on is for the next one."""
        self.due = float("inf")

    def looked(self, began: float, ended: float, next_s: float, poll_s: float) -> None:
        """A look ended; the next is due in `next_s` if nothing is heard."""
        # Not for ever: a look may have been stopped, or waited for a Slurm that is down.
        took_s = ended - began
        self.not_before = ended + min(took_s * (1 / BUSY_SHARE - 1), poll_s)
        self._calm_at = ended + min(took_s * (1 / CALM_SHARE - 1), poll_s)
        self.wake(ended + next_s)
        self._echoes = [echo for echo in self._echoes if echo > ended]
        if self._echoes:
            self.wake(self._echoes[0])

    def left_s(self, now: float) -> float:
        """Seconds until the next look."""
        return max(self.due, self.not_before) - now

    async def keep(self, look: Callable[[], Awaitable[tuple[float, float]]]) -> None:
        """Look whenever it is due, until cancelled.

        `look` says in how many seconds it wants the next if nothing is heard, and how long the
        longest pause is.
        """
        while True:
            began = time.monotonic()
            self.begin()
            next_s, poll_s = await look()
            self.looked(began, time.monotonic(), next_s, poll_s)
            await self._rest()

    async def _rest(self) -> None:
        """Until the next look is due; what is heard meanwhile may bring it forward."""
        while (left := self.left_s(time.monotonic())) > 0:
            self._sooner.clear()
            try:
                await asyncio.wait_for(self._sooner.wait(), left)
            except TimeoutError:
                return
