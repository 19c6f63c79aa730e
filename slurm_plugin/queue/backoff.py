"""Pauses before a job is updated again after Slurm refused an update of it."""

from __future__ import annotations

from collections.abc import Iterable

#: The first pause, in seconds; it doubles with every further refusal up to the longest.
FIRST_S, LONGEST_S = 2.0, 300.0


class Backoff:
    """Pauses by the name of a job. Times are epochs."""

    def __init__(self) -> None:
        # Until when, and how long this pause is.
        self._pauses: dict[str, tuple[float, float]] = {}

    def is_paused(self, name: str, now: float) -> bool:
        """Was an update of this job refused a moment ago?"""
        return self._pauses.get(name, (0.0, 0.0))[0] > now

    def refused(self, name: str, now: float) -> None:
        """Slurm refused an update: the pause is twice as long as the last."""
        _, before = self._pauses.get(name, (0.0, FIRST_S / 2))
        pause = min(2 * before, LONGEST_S)
        self._pauses[name] = (now + pause, pause)

    def pause(self, names: Iterable[str], now: float, pause_s: float = FIRST_S) -> None:
        """Try none of these for so many seconds."""
        self._pauses |= dict.fromkeys(names, (now + pause_s, pause_s))

    def accepted(self, name: str) -> None:
        """Slurm took an update of this job: the next failure waits the shortest time again."""
        self._pauses.pop(name, None)

    def forget(self, now: float) -> None:
        """Drop pauses that were over long ago."""
        self._pauses = {name: one for name, one in self._pauses.items() if one[0] + LONGEST_S > now}
