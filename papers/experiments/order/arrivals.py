"""When each job would have started in the order of arrival, on one pool of GPUs: known as it goes.

The schedule is that of Kiefer and Wolfowitz (1955): a job takes the GPUs that are free first, and
nobody starts before those that came earlier. Jobs that really started later than here may have
ended here already while they still run: until it is known, starts are told too early, never late.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Placed:
    """A job whose start here is known and whose end is not."""

    size: int
    due_s: float
    #: When it really started; None while it waits.
    started_s: float | None

    def ends_from_s(self, now_s: float) -> float:
        """It ends here at this time or later."""
        return self.due_s + (0.0 if self.started_s is None else now_s - self.started_s)


@dataclass(slots=True)
class Arrivals:
    """The order of arrival beside another one. Times in seconds, never going back."""

    gpus: int
    #: When each GPU without a job comes free here, ascending.
    _free_s: list[float] = field(init=False)
    #: (job, size, submit) that have no start here yet.
    _coming: deque[tuple[int, int, float]] = field(default_factory=deque)
    _placed: dict[int, _Placed] = field(default_factory=dict)
    #: Of them those that wait, or began later than here: they may have ended here.
    _late: set[int] = field(default_factory=set)
    #: Really started before they had a start here -> when.
    _early: dict[int, float] = field(default_factory=dict)
    #: Really ended before they had a start here -> after how long.
    _done: dict[int, float] = field(default_factory=dict)
    _last_s: float = 0.0

    def __post_init__(self) -> None:
        self._free_s = [0.0] * self.gpus

    def submitted(self, job_id: int, size: int, now_s: float) -> None:
        """A job of 1 to `gpus` GPUs came."""
        self._coming.append((job_id, size, now_s))

    def started(self, job_id: int, now_s: float) -> None:
        """The job started in Slurm, at whatever time was planned for it."""
        placed = self._placed.get(job_id)
        if placed is None:
            self._early[job_id] = now_s
            return
        placed.started_s = now_s
        if now_s <= placed.due_s:
            self._late.discard(job_id)

    def ended(self, job_id: int, seconds: float) -> None:
        """It really ended, after so many seconds."""
        placed = self._placed.pop(job_id, None)
        self._late.discard(job_id)
        self._early.pop(job_id, None)
        if placed is None:
            self._done[job_id] = seconds
        else:
            self._freed(placed.due_s + seconds, placed.size)

    def due_s(self, job_id: int, now_s: float) -> float:
        """When a job that waits starts here, or will at the earliest; `now_s` where it is open."""
        while self._coming and self._place(now_s):
            pass
        placed = self._placed.get(job_id)
        if placed is not None:
            return placed.due_s
        _, size, submit_s = self._coming[0]
        late = sorted((self._placed[one].ends_from_s(now_s), one) for one in self._late)
        free = self._free_s[: bisect_left(self._free_s, now_s)]
        for ends_s, one in late:
            at = bisect_left(free, ends_s)
            free[at:at] = [ends_s] * self._placed[one].size
        fits_s = free[size - 1] if len(free) >= size else now_s
        return min(now_s, max(submit_s, self._last_s, fits_s))

    def _place(self, now_s: float) -> bool:
        """Give the next job its start here if that is certain."""
        job_id, size, submit_s = self._coming[0]
        if len(self._free_s) < size:
            return False
        at_least_s, fits_s = max(submit_s, self._last_s), self._free_s[size - 1]
        if fits_s > at_least_s:
            others = (self._placed[one].ends_from_s(now_s) for one in self._late)
            if fits_s > now_s or fits_s > min(others, default=now_s):
                return False
        self._coming.popleft()
        del self._free_s[:size]
        self._last_s = due_s = max(at_least_s, fits_s)
        if job_id in self._done:
            self._freed(due_s + self._done.pop(job_id), size)
            return True
        began_s = self._early.pop(job_id, None)
        self._placed[job_id] = _Placed(size, due_s, began_s)
        if began_s is None or began_s > due_s:
            self._late.add(job_id)
        return True

    def _freed(self, at_s: float, size: int) -> None:
        for _ in range(size):
            insort(self._free_s, at_s)
