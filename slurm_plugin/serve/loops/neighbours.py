"""Keeps what is known of running jobs current, for policies that go by who runs beside a job."""

from __future__ import annotations

import asyncio

from policies import LooksAt
from slurm_plugin.queue.coming import Coming
from slurm_plugin.queue.snapshot import NO_SETTINGS, Settings
from slurm_plugin.queue.watcher import SETTINGS_S
from slurm_plugin.serve.loops.poll_schedule import AGE_SHARE
from slurm_plugin.serve.loops.queue_loop import RegularLoop
from slurm_plugin.serve.setup import Setup

#: Readings take no more than this share of the time, and come once in so many seconds at least.
LARGEST_SHARE, LONGEST_REST_S = 0.05, 120.0
#: While no policy has asked who runs where, the queue is not read.
IDLE_S = 1.0


class NeighboursLoop(RegularLoop):
    """Reads from the first time that a policy asks; between readings notices tell of jobs."""

    name = "neighbours"
    #: slurm.conf's values, and when they were read.
    _known = NO_SETTINGS
    _read_at = float("-inf")

    def poll_s(self, setup: Setup) -> float:
        """Seconds between two readings; more where one takes long: slurmctld and questions wait.

        Who goes by neighbours needs them at any time. `horizon` is `mapa` while the queue is not
        known: better so than that a busy machine reads all the time.
        """
        config, rest_s = setup.config.topo_aware, setup.watcher.took_s / LARGEST_SHARE
        most_s = config.max_age_s / 2 if setup.looks_at(LooksAt.RUNNING_JOBS) else LONGEST_REST_S
        return max(config.refresh_s, min(rest_s, most_s))

    async def next_s(self, setup: Setup, since: float) -> float:
        """Read who runs where, if it is time; the seconds until the next reading."""
        neighbours = setup.neighbours
        if not neighbours.is_wanted:
            return IDLE_S
        age_s, poll_s = neighbours.age_s(), self.poll_s(setup)
        if age_s is None or age_s >= poll_s:
            age_s = await self._take(setup, since)
        # Else the gates loop has just taken one.
        await asyncio.to_thread(neighbours.teacher.learn, setup.client)
        # Loops that poll as often have read the queue again by then.
        return max(0.0, (1 + AGE_SHARE) * poll_s - age_s)

    async def _settings(self, setup: Setup) -> Settings:
        """slurm.conf's values, read about once a minute."""
        now = setup.neighbours.clock()
        if now >= self._read_at + SETTINGS_S:
            config = await asyncio.to_thread(setup.client.config)
            self._known, self._read_at = Settings(config=config), now
        return self._known

    async def _take(self, setup: Setup, since: float) -> float:
        """Take what another loop has read lately, or else a new snapshot; its age in seconds."""
        neighbours, snapshot = setup.neighbours, setup.watcher.newest
        oldest = neighbours.clock() - setup.config.topo_aware.refresh_s
        if snapshot is None or snapshot.began <= oldest:
            snapshot = await setup.watcher.snapshot(since)
        running = await asyncio.to_thread(neighbours.running_in, snapshot.jobs)
        settings = await self._settings(setup)
        told = (snapshot.jobs, snapshot.at, settings, neighbours.took_s, neighbours.coming)
        coming = await asyncio.to_thread(Coming, *told)
        neighbours.take(running, snapshot.began, coming)
        return neighbours.clock() - snapshot.began
