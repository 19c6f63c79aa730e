"""Reads Slurm for the metrics and for `gputopo report` where nothing else does."""

from __future__ import annotations

import asyncio

from slurm_plugin.config.settings import Config
from slurm_plugin.queue.free_history import FreeHistory, FreeReading
from slurm_plugin.queue.snapshot import Detail
from slurm_plugin.serve.loops.queue_loop import RegularLoop
from slurm_plugin.serve.service import ANEW, Engine
from slurm_plugin.serve.setup import Setup
from slurm_plugin.serve.site_figures import figures_of

#: Seconds between two looks at the configuration, where the site does not ask for readings.
IDLE_S = 60.0
#: The first reading for the report comes so long after the engine's start: others go first then.
SETTLED_S = 60.0


class SiteLoop(RegularLoop):
    """Takes part in the readings of the other loops, and makes its own where there are none."""

    name = "site"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._history: FreeHistory | None = None
        #: When the next reading for the report is due, by the watcher's clock.
        self._due: float | None = None

    def heard(self, verb: str, is_awaited: bool = True) -> None:
        """Something happened in Slurm, or to the configuration."""
        if verb in ("reload", ANEW):
            # The file may be another one, or another engine may have added readings.
            self._history = None
        super().heard(verb, is_awaited)

    def poll_s(self, setup: Setup) -> float:
        """Seconds between two readings."""
        return min(_wanted(setup.config), default=IDLE_S)

    async def next_s(self, setup: Setup, since: float) -> float:
        """One reading, unless another loop has made one lately."""
        watcher, poll_s = setup.watcher, self.poll_s(setup)
        if self._due is None:
            self._due = watcher.clock() + SETTLED_S
        if setup.config.metrics_listen is not None and setup.config.metrics_read_s:
            newest = watcher.newest_of_nodes
            age_s = float("inf") if newest is None else watcher.clock() - newest.began
            if age_s < poll_s:
                poll_s -= age_s
            else:
                await watcher.snapshot(since, Detail.SETTINGS)
        return min(poll_s, await self._report(setup, since))

    async def _report(self, setup: Setup, since: float) -> float:
        """Note what is free where that is due; seconds until it is due again."""
        every_s, clock = setup.config.report_read_s, setup.watcher.clock
        assert self._due is not None
        if not every_s:
            return IDLE_S
        if (left_s := self._due - clock()) > 0:
            return left_s
        self._due = clock() + every_s
        snapshot = setup.watcher.newest_of_nodes
        if snapshot is None or clock() - snapshot.began > every_s / 10:
            snapshot = await setup.watcher.snapshot(since, Detail.SETTINGS)
        log = setup.config.decision_log
        if self._history is None:
            self._history = FreeHistory(log)
        # Another configuration may come while this waits: then `_history` is none again.
        history = self._history
        figures = await asyncio.to_thread(figures_of, snapshot)
        row = FreeReading.of(snapshot.at, figures.fragmentation)
        await asyncio.to_thread(history.add, row)
        return every_s


def _wanted(config: Config) -> list[float]:
    """How often readings are wanted, in seconds, by whom they are wanted at all."""
    metrics_s = config.metrics_read_s if config.metrics_listen is not None else 0.0
    return [every_s for every_s in (metrics_s, config.report_read_s) if every_s]
