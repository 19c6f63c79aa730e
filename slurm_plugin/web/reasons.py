"""What each waiting job waits for, for all jobs of one snapshot, by `gputopo why`'s own rules.

A look at thousands of jobs takes longer than a period of the page: jobs without a sentence come
first, then those whose sentence is oldest, until a share of the processor is used up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from slurm_plugin.queue.snapshot import Snapshot
from slurm_plugin.slurm.interface import QueuedJob, WaitingDetails
from slurm_plugin.web.sources import Extras
from slurm_plugin.why.answer import cause
from slurm_plugin.why.site import QueueOrder, SiteNodes, site_of
from slurm_plugin.why.state import WaitingState, hidden

#: Seconds of work at a time.
BUDGET_S = 0.5
_NO_DETAILS = WaitingDetails()


class Reason(NamedTuple):
    """Why a job waits: one word, and a sentence."""

    cause: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Reading:
    """Slurm at one moment."""

    snapshot: Snapshot
    extras: Extras = field(default_factory=Extras)

    def seen_by(self, uid: int | None) -> Reading:
        """The same with other users' jobs hidden; for None, who sees all, as it is."""
        if uid is None:
            return self
        return replace(self, snapshot=hidden(self.snapshot, uid))

    def state_of(self, job: QueuedJob) -> WaitingState:
        """All that is known of one waiting job."""
        extras = self.extras
        return WaitingState(
            job,
            self.snapshot,
            extras.details.get(job.job_id, _NO_DETAILS),
            extras.reservations,
            extras.licenses,
            extras.limits,
            extras.parents,
            extras.entries.get(job.job_id) or job.admin_comment,
        )

    def waiting(self, uid: int | None) -> list[QueuedJob]:
        """The waiting jobs that may be told of, in Slurm's order of ids."""
        jobs = (job for job in self.snapshot.jobs if job.state == "PENDING")
        return [job for job in jobs if uid is None or job.uid == uid]


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
        jobs = reading.waiting(self._uid)
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
