"""When the next poll of Slurm's queue is due: at once when a job ended, soon after a submit, and
regularly otherwise. Times are seconds of a monotonic clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

#: A submit is answered before its job is in the queue.
SUBMIT_S = 0.05
#: Polls take at most this share of the time.
BUSY_SHARE = 0.5
#: The same for polls that are made only for submits that can wait: after a burst of these the
#: queue is long, and each poll takes its time.
CALM_SHARE = 0.02
#: For so long after a submit the bridge may gate others like it without a word.
KEPT_S = 1.5
#: A job that ended holds its GPUs for a moment more: these polls follow.
ECHOES_S = (0.15, 0.5, 1.5)
#: How old a regular poll's snapshot may be, as a share of the time between polls.
AGE_SHARE = 0.2


class PollSchedule:
    """The schedule of one loop."""

    def __init__(self) -> None:
        #: When the next poll is due.
        self.due = float("inf")
        #: The next poll is not made before.
        self.not_before = 0.0
        self._calm_at = 0.0
        self._ended = float("-inf")
        # When the next poll is due if no event comes, and how old its snapshot may be.
        self._regular_at = float("inf")
        self._age_s = 0.0
        #: Does the poll follow an event that Slurm's nodes do not show, as the end of a job?
        self.has_news = True
        # When the events since the last poll began show in Slurm, and which are such news.
        self._heard: list[float] = []
        self._news: list[float] = []
        # When the last of these was heard, and when a poll with news began.
        self._said = self._read = float("-inf")
        self._echoes: list[float] = []
        self._sooner = asyncio.Event()

    def heard(self, verb: str, is_awaited: bool = True, at: float | None = None) -> None:
        """A job was submitted or ended, or something else happened, `at` this time or now.

        A submitted job `is_awaited` if it starts now, or as soon as a poll has seen it.
        """
        now = time.monotonic() if at is None else at
        if verb == "submit":
            now = max(now + SUBMIT_S, 0.0 if is_awaited else self._calm_at)
        elif verb == "ended":
            self._echoes = [now + later for later in ECHOES_S]
        if verb != "ended":
            self._news.append(now)
            self._said = time.monotonic() if at is None else at
        self._wake(now)

    def _wake(self, due: float) -> None:
        """Poll at this time or sooner, and see what happened before it."""
        self._heard.append(due)
        self._due_by(due)

    def _due_by(self, due: float) -> None:
        if due < self.due:
            self.due = due
            self._sooner.set()

    def begin(self, now: float) -> float:
        """A poll begins; later events are for the next one.

        It must see all that happened before the time that is returned, and never takes the snapshot
        of the last poll again.
        """
        since = max((self._ended, *(at for at in self._heard if at <= now)))
        if now >= self._regular_at:
            since = max(since, self._regular_at - self._age_s)
        is_quiet = now >= self._said + KEPT_S
        self.has_news = any(at <= now for at in self._news) or (
            is_quiet and self._said + KEPT_S > self._read
        )
        self._read = now if self.has_news else self._read
        # A submit that can wait for a poll of its own is not seen by one that reads no queue.
        self._news = [] if self.has_news or not self._news else [min(self._news)]
        self.due = min(self._news, default=float("inf"))
        self._heard = list(self._news)
        return since

    def polled(self, began: float, ended: float, next_s: float, poll_s: float) -> None:
        """A poll ended; the next is due in `next_s` if no event comes, `poll_s` at the latest."""
        # Bounded: a poll may have been stopped, or waited for a Slurm that is down.
        took_s = ended - began
        self.not_before = ended + min(took_s * (1 / BUSY_SHARE - 1), poll_s)
        self._calm_at = ended + min(took_s * (1 / CALM_SHARE - 1), poll_s)
        self._ended, self._regular_at = ended, ended + next_s
        self._age_s = AGE_SHARE * poll_s if next_s >= poll_s else 0.0
        self._due_by(self._regular_at)
        self._echoes = [echo for echo in self._echoes if echo > ended]
        if self._echoes:
            self._wake(self._echoes[0])

    def left_s(self, now: float) -> float:
        """Seconds until the next poll."""
        return max(self.due, self.not_before) - now

    async def keep(self, poll: Callable[[float], Awaitable[tuple[float, float]]]) -> None:
        """Poll whenever it is due, until cancelled.

        `poll` gets the time before which all must be seen. It returns the seconds to the next poll
        if no event comes, and the longest pause.
        """
        while True:
            began = time.monotonic()
            next_s, poll_s = await poll(self.begin(began))
            self.polled(began, time.monotonic(), next_s, poll_s)
            await self._rest()

    async def _rest(self) -> None:
        """Until the next poll is due; an event may bring it forward."""
        while (left := self.left_s(time.monotonic())) > 0:
            self._sooner.clear()
            try:
                await asyncio.wait_for(self._sooner.wait(), left)
            except TimeoutError:
                return
