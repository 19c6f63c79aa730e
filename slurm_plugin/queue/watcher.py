"""The one reader of Slurm's queue. All who are due at the same time get the same snapshot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from slurm_plugin.base.telemetry import Telemetry
from slurm_plugin.errors import SlurmError
from slurm_plugin.queue.snapshot import Detail, Settings, Snapshot, read_snapshot
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import QueuedJob

Answer = TypeVar("Answer")

#: A queue of so many jobs is long.
LONG = 1000
#: A long queue is not read again where the nodes are as they were, unless something came that they
#: do not show, or reading it takes no more than this share of the time.
CALM_SHARE = 0.02
#: And once in so many seconds whatever it takes.
LONGEST_S = 20.0
#: Partitions and Slurm's settings change seldom; they are read this often, and each time while a
#: partition starts no jobs: those that wait for it are not to wait longer once it does. And once
#: slurmctld has read slurm.conf, and for a while after, for until then the former one answers.
SETTINGS_S, SETTLES_S = 60.0, 5.0


@dataclass(slots=True)
class Watcher:
    """Reads in a thread, at most once at a time, and only when somebody asks for a snapshot.

    Only the event loop may call it. `clock` is one that nobody sets, `wall_clock` gives epochs.
    """

    client: SlurmClient
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    telemetry: Telemetry = field(default_factory=Telemetry)
    #: Is shown the jobs of every reading, and its epoch, in the thread that reads.
    look: Callable[[Iterable[QueuedJob], float], None] = lambda jobs, at: None
    #: The newest snapshot, whatever happened since; None before the first one.
    newest: Snapshot | None = None
    #: The newest one that shows the nodes, too.
    newest_of_nodes: Snapshot | None = None
    #: How long the last reading of the queue took, in seconds.
    took_s: float = 0.0
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _wanted: Detail = Detail.JOBS
    _failure: tuple[float, SlurmError] | None = None
    _settings: Settings | None = None
    _settings_at: float = float("-inf")
    _configured_at: float = 0.0
    _outdated_at: float = float("-inf")

    def outdate(self) -> None:
        """The queue was changed: no older snapshot is given out any more."""
        self._outdated_at = self.clock()

    async def changes(self, since: float) -> Snapshot:
        """The same in all detail, for who needs to know of jobs that ran until `since`.

        A job that ended or started shows in the nodes. As long as these are as they were, the queue
        is the one that was read last, where that is long.
        """
        async with self._reading:
            newest, now = self.newest, self.clock()
            is_long = newest is not None and len(newest.jobs) >= LONG
            if newest is not None and is_long and newest.detail >= Detail.SETTINGS:
                age = now - newest.began
                is_calm = age < min(self.took_s / CALM_SHARE, LONGEST_S)
                if is_calm and newest.began > self._outdated_at and newest.began < since:
                    nodes = await self._ask(now, lambda: tuple(self.client.nodes()))
                    if nodes == newest.nodes:
                        return replace(newest, began=now, at=self.wall_clock())
        return await self.snapshot(since, Detail.SETTINGS)

    def renewed(self, until: Mapping[int, int]) -> None:
        """The queue is as it was, but for when these jobs become eligible (epochs, by job id)."""
        newest = self.newest
        if newest is not None and until:
            jobs = (
                replace(job, eligible=until[job.job_id]) if job.job_id in until else job
                for job in newest.jobs
            )
            self.newest = replace(newest, jobs=tuple(jobs))

    async def snapshot(self, since: float, detail: Detail = Detail.JOBS) -> Snapshot:
        """A snapshot that shows all that happened before `since` (by `clock`); waits for a reading.

        Raises SlurmError where Slurm does not answer.
        """
        self._wanted = max(self._wanted, detail)
        async with self._reading:
            # Others may be due in this very moment, and want more detail.
            await asyncio.sleep(0)
            since = max(since, self._outdated_at)
            newest = self.newest
            if newest is not None and newest.began >= since and newest.detail >= detail:
                return newest
            if self._failure is not None and self._failure[0] >= since:
                raise self._failure[1]
            wanted, self._wanted = self._wanted, Detail.JOBS
            self.newest = await self._read(wanted)
            return self.newest

    async def _read(self, detail: Detail) -> Snapshot:
        began = self.clock()
        known, age_s = self._settings, began - self._settings_at
        is_known = known is not None and known.is_up and age_s <= SETTINGS_S
        at = self.wall_clock()

        def read() -> Snapshot:
            # Who does not ask for them is served by older ones, too.
            settings = known if is_known or detail < Detail.SETTINGS else None
            if settings is not None:
                configured_at = settings.configured_at()
                settles = 0.0 <= at - configured_at < SETTLES_S
                if settles or configured_at != self._configured_at:
                    settings = None
            snapshot = read_snapshot(self.client, detail, settings, began, at)
            self.look(snapshot.jobs, at)
            return snapshot

        snapshot = await self._ask(began, read)
        self.took_s = self.clock() - began
        if detail >= Detail.SETTINGS and snapshot.settings is not known:
            self._settings, self._settings_at = snapshot.settings, began
            self._configured_at = await asyncio.to_thread(snapshot.settings.configured_at)
        if detail >= Detail.NODES:
            self.newest_of_nodes = snapshot
        return snapshot

    async def _ask(self, began: float, read: Callable[[], Answer]) -> Answer:
        """What was read, in a thread. Raises SlurmError where Slurm does not answer."""
        try:
            answer = await asyncio.to_thread(read)
        except SlurmError as error:
            self._failure = (began, error)
            self.telemetry.slurm_reads["failed"].add(self.clock() - began)
            raise
        self.telemetry.slurm_reads["ok"].add(self.clock() - began)
        return answer
