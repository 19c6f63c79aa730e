"""What each waiting job waits for, for all jobs of one snapshot, by `gputopo why`'s own rules.

A look at thousands of jobs takes longer than a period of the page: jobs without a sentence come
first, then those whose sentence is oldest, until a share of the processor is used up.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.tell.why.answer import cause
from slurm_plugin.tell.why.reading import Reading

#: Jobs that are listed: of one user, and of all users to those who see all.
MAX_OF_ONE, MAX_LISTED = 1000, 4000
#: Seconds of work at a time.
BUDGET_S = 0.5


class Reason(NamedTuple):
    """Why a job waits: one word, and a sentence."""

    cause: str
    sentence: str


def listed_jobs(reading: Reading, uid: int | None) -> list[QueuedJob]:
    """The jobs told of: of too many those with GPUs, then others that run, then the first in line.

    Of several users' jobs each one's first, then each one's second, and so on: nobody's many
    jobs leave no room for the others'.
    """
    jobs, places = reading.seen(uid), reading.places
    if len(jobs) <= MAX_OF_ONE:
        return jobs
    jobs.sort(key=lambda job: (not job.gpus, places.get(job.job_id, 0)))
    nth: Counter[int] = Counter()
    turns = []
    for job in jobs:
        nth[job.uid] += 1
        if nth[job.uid] <= MAX_OF_ONE:
            turns.append((nth[job.uid], job))
    turns.sort(key=lambda turn: turn[0])
    return [job for _, job in turns[:MAX_LISTED]]


class Reasons:
    """The sentences for one kind of viewer; `uid` is None for those who see all."""

    def __init__(self, uid: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._uid, self._clock = uid, clock
        self._said: dict[int, tuple[float, Reason]] = {}

    @property
    def said(self) -> Mapping[int, Reason]:
        """Job -> its reason, for those that were looked at."""
        return {job: reason for job, (_, reason) in self._said.items()}

    def look(self, reading: Reading, budget_s: float = BUDGET_S) -> bool:
        """Go on with the sentences; True where one has changed. At least one job is looked at."""
        began = self._clock()
        jobs = [job for job in listed_jobs(reading, self._uid) if job.state == "PENDING"]
        before = self._said
        self._said = {job.job_id: before[job.job_id] for job in jobs if job.job_id in before}
        never = (float("-inf"), None)
        jobs.sort(key=lambda job: self._said.get(job.job_id, never)[0])
        has_changed = False
        for job, reason in _reasons(reading.seen_by(self._uid), jobs):
            has_changed |= before.get(job, never)[1] != reason
            self._said[job] = (began, reason)
            if self._clock() - began > budget_s:
                break
        return has_changed


def _reasons(reading: Reading, jobs: Iterable[QueuedJob]) -> Iterable[tuple[int, Reason]]:
    for job in jobs:
        explained = cause(reading.state_of(job), reading.site_of(job), reading.order)
        yield job.job_id, Reason(explained.cause, explained.sentence)
