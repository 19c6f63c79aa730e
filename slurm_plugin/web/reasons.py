"""What each waiting job waits for, for all jobs of one snapshot, by `gputopo why`'s own rules.

A look at thousands of jobs takes longer than a period of the page: jobs without a sentence come
first, then those whose sentence is oldest, until a share of the processor is used up.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from slurm_plugin.queue.backfill import in_order
from slurm_plugin.queue.snapshot import Snapshot
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.web.sources import Extras
from slurm_plugin.why.answer import cause
from slurm_plugin.why.site import QueueOrder, SiteNodes, site_of
from slurm_plugin.why.state import HIDDEN, WaitingState, hidden

#: Jobs that are listed: of one user, and of all users to those who see all.
MAX_OF_ONE, MAX_LISTED = 1000, 4000
#: Seconds of work at a time.
BUDGET_S = 0.5


class Reason(NamedTuple):
    """Why a job waits: one word, and a sentence."""

    cause: str
    sentence: str


@dataclass(frozen=True)
class Reading:
    """Slurm at one moment. What all viewers need of it is found once."""

    snapshot: Snapshot
    extras: Extras = field(default_factory=Extras)

    def seen_by(self, uid: int | None) -> Reading:
        """The same with other users' jobs hidden; for None, who sees all, as it is."""
        if uid is None:
            return self
        own = (
            job if job.uid == uid else other
            for job, other in zip(self.snapshot.jobs, self._nobodys, strict=True)
        )
        return replace(self, snapshot=replace(self.snapshot, jobs=tuple(own)))

    @cached_property
    def _nobodys(self) -> tuple[QueuedJob, ...]:
        """Every job with its owner hidden."""
        return hidden(self.snapshot, HIDDEN).jobs

    @cached_property
    def places(self) -> dict[int, int]:
        """Each waiting job's place among all, from 1."""
        order = in_order(self.waiting(None), self.snapshot.settings.tiers)
        return {job.job_id: place for place, job in enumerate(order, 1)}

    def state_of(self, job: QueuedJob) -> WaitingState:
        """All that is known of one waiting job."""
        extras = self.extras
        return WaitingState(
            job,
            self.snapshot,
            extras.reservations,
            extras.licenses,
            extras.limits,
            extras.parents,
            extras.entries.get(job.job_id) or job.admin_comment,
        )

    def waiting(self, uid: int | None) -> list[QueuedJob]:
        """The waiting jobs that may be told of, in Slurm's order of ids."""
        return [job for job in self.seen(uid) if job.state == "PENDING"]

    def seen(self, uid: int | None) -> list[QueuedJob]:
        """All jobs that may be told of."""
        return [job for job in self.snapshot.jobs if uid is None or job.uid == uid]

    def listed(self, uid: int | None) -> list[QueuedJob]:
        """Of too many such jobs those with GPUs, then others that run, then the first in line.

        Of several users' jobs each one's first, then each one's second, and so on: nobody's many
        jobs leave no room for the others'.
        """
        jobs, places = self.seen(uid), self.places
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
        jobs = [job for job in reading.listed(self._uid) if job.state == "PENDING"]
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
    """One by one; what they have in common is made once."""
    order = QueueOrder(reading.snapshot)
    sites: dict[object, SiteNodes] = {}
    for job in jobs:
        state = reading.state_of(job)
        # Only reservations make the nodes look different to two jobs.
        key = (job.reservation, job.time_limit_s) if reading.extras.reservations else None
        if key not in sites:
            sites[key] = site_of(state)
        explained = cause(state, sites[key], order)
        yield job.job_id, Reason(explained.cause, explained.sentence)
