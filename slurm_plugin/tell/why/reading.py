"""Slurm at one moment, as `why`, the page and `top` tell of it: one reading for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from slurm_plugin.queue.backfill import in_order
from slurm_plugin.queue.snapshot import Snapshot
from slurm_plugin.slurm.clients import scontrol_tables
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.slurm.runner import Runner
from slurm_plugin.tell.why.site import QueueOrder, SiteNodes, site_of
from slurm_plugin.tell.why.state import HIDDEN, Extras, WaitingState, hidden, may_meet_limit

#: Reservations, licences and limits are read anew after so many seconds.
SELDOM_S = 10.0
#: Views of the nodes that are kept of one reading: users choose their jobs' time limits.
MOST_SITES = 32


class ExtrasReader:
    """Asks Slurm for no more than the waiting jobs need."""

    def __init__(self, run: Runner, entries: Callable[[], Mapping[int, str]] = lambda: {}) -> None:
        """`entries` gives our entries about jobs, where they are not in their AdminComment."""
        self._run, self._entries = run, entries
        self._seldom_at = float("-inf")
        self._seldom = Extras()
        self._wants = {"limits": False, "licenses": False}

    def __call__(self, snapshot: Snapshot) -> Extras:
        """What the jobs of this snapshot need. Raises SlurmError."""
        waiting = [job for job in snapshot.jobs if job.state == "PENDING"]
        if not waiting:
            return Extras()
        entries, now = self._entries(), time.monotonic()
        is_due = now - self._seldom_at >= SELDOM_S
        # Of limits and licences only where one of the jobs may wait for them; which of thousands
        # do is not looked at while what was read for one of them still counts.
        has = {what: wanted and not is_due for what, wanted in self._wants.items()}
        settings = snapshot.settings
        wants = {
            "limits": has["limits"]
            or any(
                may_meet_limit(job, entries.get(job.job_id) or job.admin_comment, settings)
                for job in waiting
            ),
            "licenses": has["licenses"] or any(job.licenses for job in waiting),
        }
        if is_due or wants != has:
            self._seldom = self._read(wants)
            self._seldom_at, self._wants = now, wants
        return replace(self._seldom, entries=entries)

    def _read(self, wants: Mapping[str, bool]) -> Extras:
        run = self._run
        limits, parents = scontrol_tables.limits(run) if wants["limits"] else ([], {})
        return Extras(
            reservations=tuple(scontrol_tables.reservations(run)),
            licenses=tuple(scontrol_tables.licenses(run)) if wants["licenses"] else (),
            limits=tuple(limits),
            parents=parents,
        )


@dataclass(frozen=True)
class Reading:
    """Slurm at one moment: what is told of any job of it. What several need is found once."""

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
        return WaitingState(job, self.snapshot, self.extras)

    @cached_property
    def order(self) -> QueueOrder:
        """The jobs that wait for nothing but what others hold."""
        return QueueOrder(self.snapshot)

    def site_of(self, job: QueuedJob) -> SiteNodes:
        """The nodes as they are to a job."""
        # Only reservations make them look different to two jobs.
        key = (job.reservation, job.time_limit_s) if self.extras.reservations else ("", 0)
        if key not in self._sites:
            if len(self._sites) >= MOST_SITES:
                self._sites.clear()
            self._sites[key] = site_of(self.state_of(job))
        return self._sites[key]

    @cached_property
    def _sites(self) -> dict[tuple[str, int], SiteNodes]:
        return {}

    def waiting(self, uid: int | None) -> list[QueuedJob]:
        """The waiting jobs that may be told of, in Slurm's order of ids."""
        return [job for job in self.seen(uid) if job.state == "PENDING"]

    def seen(self, uid: int | None) -> list[QueuedJob]:
        """All jobs that may be told of."""
        return [job for job in self.snapshot.jobs if uid is None or job.uid == uid]
