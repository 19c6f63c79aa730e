"""Who may go before the first in line, and for how long: shorter work passes within a bound.

The first in line is *due* from the first moment at which it could start if all that passed it were
gone. Nobody passes it who is reckoned to hold GPUs for longer than the bound after that moment:
before it is due a passing job may run for `bound_s`, afterwards for what is left of it. Who is due
stays so when others come before it.

By `limits` a job is reckoned with what Slurm enforces, so those that passed a job hold it up for
`bound_s` at most, on whatever nodes and whatever jobs really take. By `predictions` it is a high
quantile of what its user's jobs like it took, and some do outlive it. So a prediction counts only
where the limit is `MULTIPLE` times as long at most: those that passed a job hold it up for so many
bounds at most, whatever anybody's earlier jobs were made to look like. And whose passing job
outlived what it was reckoned with is reckoned with by limits for `LOST_S`.

A delay is handed on to those that come later, short ones too. So all have the same bound, that of
the shortest, and none a part of its own run time.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from policies.order.durations import KnownJob, Learning, to_step

Reckoned = Literal["limits", "predictions"]
#: By default nobody is held up for longer (seconds).
BOUND_S = 600.0
#: The quantile that counts as the longest a job runs, where predictions decide.
LONGEST = 0.9
#: A prediction counts where the limit is so many times as long at most (docs/policies/order.md).
MULTIPLE = 2.0
#: For so long a user's jobs pass by their limits alone, once one of them outlived its prediction.
LOST_S = 86_400.0


class _Job(NamedTuple):
    """A job as it was submitted: what it will take is estimated once, for all comparisons."""

    user: str
    #: When Slurm ends it; inf where it does not.
    limit_s: float
    #: For how long it is reckoned to hold its GPUs unless its user lost that: its limit at most.
    longest_s: float
    #: GPU seconds it is predicted to take; inf where nobody can say.
    work: float


@dataclass(slots=True)
class Passing:
    """The rule for one queue: what is known of its jobs, and who was due since when."""

    bound_s: float = BOUND_S
    by: Reckoned = "limits"
    #: Whoever sees the jobs end teaches it.
    learning: Learning = field(default_factory=Learning)
    multiple: float = MULTIPLE
    _jobs: dict[int, _Job] = field(default_factory=dict)
    #: Jobs that were first in line -> when each was due.
    _due: dict[int, float] = field(default_factory=dict)
    #: Jobs whose prediction alone lets them pass; and those of them that did, and when each began.
    _trusted: set[int] = field(default_factory=set)
    _running: dict[int, float] = field(default_factory=dict)

    @property
    def promise_s(self) -> float:
        """Nobody is held up for longer by those that passed it, whatever they really take."""
        return self.bound_s * (1.0 if self.by == "limits" else self.multiple)

    def submitted(self, job_id: int, known: KnownJob) -> None:
        """A job waits from now on, or again, or has another limit.

        `known.limit_s` is the one that Slurm enforces.
        """
        self._running.pop(job_id, None)
        said = self.learning.submitted(job_id, known)
        limit_s = math.inf if known.limit_s is None else known.limit_s
        longest_s = limit_s
        if self.by == "predictions" and self.learning.took_s(job_id):
            predicted_s = said.quantile(LONGEST)
            if predicted_s is not None and limit_s <= self.multiple * predicted_s:
                longest_s = min(limit_s, predicted_s)
        middle = said.quantile(0.5)
        work = known.size * min(limit_s, math.inf if middle is None else middle)
        self._jobs[job_id] = _Job(known.user, limit_s, longest_s, work)

    def started(self, job_id: int, now_s: float, passed: bool = False) -> None:
        """A job runs: nobody can hold it up any more. `passed`: before the first in line."""
        self._due.pop(job_id, None)
        if passed and job_id in self._trusted:
            self._running[job_id] = now_s

    def ended(self, job_id: int, now_s: float | None = None) -> None:
        """A job is gone; None where it is not known well since when."""
        if now_s is not None and job_id in self._running:
            self._judge(job_id, now_s)
        self._due.pop(job_id, None)
        self._jobs.pop(job_id, None)
        self._running.pop(job_id, None)
        self._trusted.discard(job_id)

    def _judge(self, job_id: int, now_s: float) -> None:
        """Has it outlived what it was reckoned with?"""
        job, ran_s = self._jobs[job_id], now_s - self._running[job_id]
        if to_step(ran_s) > to_step(job.longest_s):
            self.learning.outlived[job.user] = now_s

    def longest_s(self, job_id: int, now_s: float) -> float:
        """For how long a job that waits is reckoned to hold its GPUs (seconds)."""
        job = self._jobs[job_id]
        lost_at = self.learning.outlived.get(job.user)
        has_lost = lost_at is not None and now_s - lost_at < LOST_S
        return job.limit_s if has_lost else job.longest_s

    def due_s(
        self, first: int, could_start: bool, now_s: float, line: Container[int] | None = None
    ) -> float:
        """Since when the first in line, or one behind it, is due; `now_s` where nobody is.

        `could_start`: whether it would start now if all that passed it were gone. `line`: the jobs
        that wait for room; all that were ever first where it is None. Who was due stays so while
        others come before it: what passes these passes it, too.
        """
        if could_start:
            self._due.setdefault(first, now_s)
        due = (at for job_id, at in self._due.items() if line is None or job_id in line)
        return min(due, default=now_s)

    def held_up_s(self, job_id: int, now_s: float) -> float:
        """How long a job that waits has been due (seconds)."""
        return now_s - self._due.get(job_id, now_s)

    def may_pass(self, due_s: float, others: Iterable[int], now_s: float) -> list[int]:
        """Those that may go before a first in line that is due at that time; least work first."""
        room_s = due_s + self.bound_s - now_s
        if room_s <= 0:
            return []
        for job_id in self._running:
            self._judge(job_id, now_s)
        jobs = self._jobs
        able = [one for one in others if one in jobs and self.longest_s(one, now_s) <= room_s]
        self._trusted.difference_update(able)
        self._trusted.update(one for one in able if jobs[one].limit_s > room_s)
        return sorted(able, key=lambda one: jobs[one].work)
