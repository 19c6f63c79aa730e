"""Who may go before the first in line, and for how long: shorter work passes within a bound.

The first in line is *due* from the first moment at which it could start if all that passed it were
gone. Nobody passes it who may hold GPUs for longer than the bound after that moment: before it is
due a passing job may run for `bound_s`, afterwards for what is left of it. So whatever the base
order and whatever jobs really take, those that passed a job hold it up for `bound_s` at most, as
long as nobody outlives what was reckoned with. By `limits` that is the job's time limit, which
Slurm enforces; by `predictions` it is a high quantile of jobs like it, and some do outlive it.

A delay is handed on to those that come later, short ones too. So all have the same bound, that of
the shortest, and none a part of its own run time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from policies.order.durations import Known, Learning

Reckoned = Literal["limits", "predictions"]
#: By default nobody is held up for longer (seconds).
BOUND_S = 600.0
#: The quantile that counts as the longest a job runs, where predictions decide.
LONGEST = 0.9


class _Job(NamedTuple):
    """A job as it was submitted: what it will take is estimated once, for all comparisons."""

    #: For how long it is reckoned to hold its GPUs; inf where nobody can say.
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
    _jobs: dict[int, _Job] = field(default_factory=dict)
    #: Jobs that were first in line -> when each was due.
    _due: dict[int, float] = field(default_factory=dict)

    def submitted(self, job_id: int, known: Known) -> None:
        """A job waits from now on."""
        said = self.learning.submitted(job_id, known)
        longest = known.limit_s if self.by == "limits" else said.quantile(LONGEST)
        middle = said.quantile(0.5)
        self._jobs[job_id] = _Job(
            math.inf if longest is None else longest,
            math.inf if middle is None else known.size * middle,
        )

    def started(self, job_id: int) -> None:
        """A job runs: nobody can hold it up any more."""
        self._due.pop(job_id, None)

    def ended(self, job_id: int) -> None:
        """A job is gone."""
        self._due.pop(job_id, None)
        self._jobs.pop(job_id, None)

    def longest_s(self, job_id: int) -> float:
        """For how long a job that waits or runs is reckoned to hold its GPUs (seconds)."""
        return self._jobs[job_id].longest_s

    def due_s(self, first: int, could_start: bool, now_s: float) -> float:
        """Since when the first in line is due; `now_s` where it is not.

        `could_start`: whether it would start now if all that passed it were gone.
        """
        if could_start:
            self._due.setdefault(first, now_s)
        return self._due.get(first, now_s)

    def may_pass(self, due_s: float, others: Iterable[int], now_s: float) -> list[int]:
        """Those that may go before a first in line that is due at that time; least work first."""
        room_s = due_s + self.bound_s - now_s
        if room_s <= 0:
            return []
        jobs = self._jobs
        able = [one for one in others if one in jobs and jobs[one].longest_s <= room_s]
        return sorted(able, key=lambda one: jobs[one].work)
