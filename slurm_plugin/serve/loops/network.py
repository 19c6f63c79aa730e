"""Notices when slurmctld has another topology in force: nodes move, and files are read again."""

from __future__ import annotations

import asyncio
from typing import Any

from slurm_plugin.serve.loops.queue_loop import RegularLoop
from slurm_plugin.serve.setup import Setup

#: Seconds between two questions, and between two looks at a configuration without a network.
POLL_S, IDLE_S = 10.0, 60.0


class NetworkLoop(RegularLoop):
    """Asks slurmctld for as long as gputopo.yaml has a topology_conf."""

    name = "network"

    def status(self) -> dict[str, Any]:
        """What `gputopo status` shows; nothing where the site names no network."""
        status = self.engine.setup.decider.networks.status()
        return {"network": status} if status else {}

    def poll_s(self, setup: Setup) -> float:
        """Seconds between two questions."""
        return IDLE_S if setup.decider.networks.file is None else POLL_S

    async def next_s(self, setup: Setup, since: float) -> float:
        """Ask slurmctld once for the networks in force; seconds until the next question."""
        networks = setup.decider.networks
        if networks.file is not None:
            told = await asyncio.to_thread(setup.client.networks)
            networks.take(told, setup.watcher.wall_clock())
        return self.poll_s(setup)
