"""One clock and one heap of events for every simulator, and how a job's remaining work is kept.

A simulator says what happens when (`Clock.at`), and how fast each running job goes from now on
(`Clock.run`); time jumps from one event to the next.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class JobProgress:
    """How far a running job has come."""

    start_s: float
    #: When its speed last changed.
    since_s: float = 0.0
    #: Seconds that all of its work takes at this speed; below 0 while no speed is known.
    full_s: float = -1.0
    #: The share of its work that was left at `since_s`.
    left: float = 1.0
    has_ended: bool = False

    def end_s(self) -> float:
        """When it ends if its speed stays as it is."""
        return self.since_s + self.left * self.full_s

    def change_speed(self, now_s: float, full_s: float) -> None:
        """From now on all of its work would take `full_s`."""
        if self.full_s > 0:
            self.left = max(0.0, self.left - (now_s - self.since_s) / self.full_s)
        self.since_s, self.full_s = now_s, full_s


@dataclass(slots=True)
class Clock:
    """The time, and what is to happen.

    Of events at the same second those with the lesser `order` come first, and of the same order
    those that were added first.
    """

    now_s: float = 0.0
    _events: list[tuple[float, tuple[int, ...], int, Callable[[], object]]] = field(
        default_factory=list
    )
    _serial: itertools.count[int] = field(default_factory=itertools.count)

    def __bool__(self) -> bool:
        """Whether anything is still to happen."""
        return bool(self._events)

    def at(self, at_s: float, happens: Callable[[], object], *order: int) -> None:
        """Call `happens` at that second."""
        heapq.heappush(self._events, (at_s, order, next(self._serial), happens))

    def run(self, job: JobProgress, full_s: float, ends: Callable[[], object], *order: int) -> None:
        """The job goes on at a new speed; call `ends` when its work is done.

        An end that was expected at the old speed is still in the heap and comes to nothing.
        """
        job.change_speed(self.now_s, full_s)

        def end() -> None:
            if not job.has_ended and job.end_s() <= self.now_s:
                job.has_ended = True
                ends()

        self.at(job.end_s(), end, *order)

    def step(self) -> None:
        """Go to the next event, and let it happen."""
        self.now_s, _, _, happens = heapq.heappop(self._events)
        happens()

    def moment(self) -> None:
        """Everything that happens at the next second at which something does."""
        self.step()
        while self._events and self._events[0][0] == self.now_s:
            self.step()
