"""When the next look at Slurm's queue is due: at once when a job ended, soon after a submit, and
regularly otherwise.

Times are those of one monotonic clock, in seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

#: A submit is answered before its job is in the queue.
SUBMIT_S = 0.05
#: The most of the time that is spent looking; and the most that is spent because of submits that
#: can wait: a burst of them must not pay for a reading of the growing queue each time.
BUSY_SHARE, CALM_SHARE = 0.25, 0.02
#: A job that ended holds its GPUs for a moment more: these looks follow.
ECHOES_S = (0.15, 0.5, 1.5)
#: A regular look is content with a snapshot of this age, as a share of the time between polls.
AGE_SHARE = 0.2


class PollSchedule:
    """The schedule of one loop."""

    def __init__(self) -> None:
        #: When the next look is due.
        self.due = float("inf")
        #: The next look is not taken before.
        self.not_before = 0.0
        self._calm_at = 0.0
        self._ended = float("-inf")
        # When the next look is due if nothing is heard, and how old its snapshot may be.
        self._regular_at = float("inf")
        self._age_s = 0.0
        # What was heard since the last look began: the times at which it shows in Slurm.
        self._heard: list[float] = []
        self._echoes: list[float] = []
        self._sooner = asyncio.Event()

    def heard(self, verb: str, is_awaited: bool = True, at: float | None = None) -> None:
        """A job was submitted or ended, or something else happened, `at` this time or now.

        A submitted job `is_awaited` if it starts now, or as soon as it has been looked at.
        """
        now = time.monotonic() if at is None else at
        if verb == "submit":
            now = max(now + SUBMIT_S, 0.0 if is_awaited else self._calm_at)
        elif verb == "ended":
            self._echoes = [now + later for later in ECHOES_S]
        self._wake(now)

    def _wake(self, due: float) -> None:
        """Look at this time or sooner, and see what happened before it."""
        self._heard.append(due)
        self._look_at(due)

    def _look_at(self, due: float) -> None:
        if due < self.due:
            self.due = due
            self._sooner.set()

    def begin(self, now: float) -> float:
        """A look begins: what is heard from here on is for the next one.

        This one must see all that happened before the time that is returned; never the snapshot
        of the last look again.
        """
        since = max((self._ended, *(at for at in self._heard if at <= now)))
        if now >= self._regular_at:
            since = max(since, self._regular_at - self._age_s)
        self.due = float("inf")
        self._heard = []
        return since

    def looked(self, began: float, ended: float, next_s: float, poll_s: float) -> None:
        """A look ended; the next is due in `next_s` if nothing is heard, `poll_s` at the latest."""
        # Not for ever: a look may have been stopped, or waited for a Slurm that is down.
        took_s = ended - began
        self.not_before = ended + min(took_s * (1 / BUSY_SHARE - 1), poll_s)
        self._calm_at = ended + min(took_s * (1 / CALM_SHARE - 1), poll_s)
        self._ended, self._regular_at = ended, ended + next_s
        self._age_s = AGE_SHARE * poll_s if next_s >= poll_s else 0.0
        self._look_at(self._regular_at)
        self._echoes = [echo for echo in self._echoes if echo > ended]
        if self._echoes:
            self._wake(self._echoes[0])

    def left_s(self, now: float) -> float:
        """Seconds until the next look."""
        return max(self.due, self.not_before) - now

    async def keep(self, look: Callable[[float], Awaitable[tuple[float, float]]]) -> None:
        """Look whenever it is due, until cancelled.

        `look` gets the time before which all must be seen. It answers in how many seconds it
        wants the next look if nothing is heard, and how long the longest pause is.
        """
        while True:
            began = time.monotonic()
            next_s, poll_s = await look(self.begin(began))
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
