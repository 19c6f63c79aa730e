"""Reads Slurm for the metrics where nothing else does; only where the site asks for that."""

from __future__ import annotations

from slurm_plugin.queue.snapshot import Detail
from slurm_plugin.serve.loops.queue_loop import RegularLoop
from slurm_plugin.serve.setup import Setup

#: Seconds between two looks at the configuration, where the site does not ask for readings.
IDLE_S = 60.0


class SiteLoop(RegularLoop):
    """Takes part in the readings of the other loops, and makes its own where there are none."""

    name = "site"

    def poll_s(self, setup: Setup) -> float:
        """Seconds between two readings."""
        return setup.config.metrics_read_s or IDLE_S

    async def next_s(self, setup: Setup, since: float) -> float:
        """One reading, unless another loop has made one lately."""
        config, watcher, poll_s = setup.config, setup.watcher, self.poll_s(setup)
        if config.metrics_listen is None or not config.metrics_read_s:
            return poll_s
        newest = watcher.newest_of_nodes
        age_s = float("inf") if newest is None else watcher.clock() - newest.began
        if age_s < poll_s:
            return poll_s - age_s
        await watcher.snapshot(since, Detail.NODES)
        return poll_s
