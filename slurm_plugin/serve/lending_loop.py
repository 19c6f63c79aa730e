"""Looks at the queue and lends, often while donors start."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from slurm_plugin.config.sections import SlurmConfig
from slurm_plugin.errors import SlurmError
from slurm_plugin.job_profiles import read_remote
from slurm_plugin.lending.at_start.lender import Lender
from slurm_plugin.lending.at_start.mode import AtStart
from slurm_plugin.lending.at_start.reserved import Reserved
from slurm_plugin.lending.broker import Broker
from slurm_plugin.lending.donors import lending_of
from slurm_plugin.serve.clock_watch import CLOCK_SET
from slurm_plugin.serve.pace import Pace
from slurm_plugin.serve.service import Engine
from slurm_plugin.serve.setup import Setup
from slurm_plugin.slurm import choose
from slurm_plugin.slurm.interface import SlurmClient

logger = logging.getLogger(__name__)

POLL_S = 5.0
#: Donors start within some tenths of a second.
STARTING_S = 0.3
#: A job whose donors are ready starts at once, or lacks something that nobody thought of.
GRACE_S = 30


class Loop:
    """Looks for as long as `enforcement: select` lends, and until what it lent has ended."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pace = Pace()
        self._setup: Setup | None = None
        self._lender: Lender | None = None
        self._client: tuple[SlurmConfig, SlurmClient] | None = None
        # A former engine may have left loans, whatever this one's configuration says.
        self._is_clear = False
        engine.listen(self.heard, self.status)

    def heard(self, verb: str) -> None:
        """Something happened in Slurm, or to the configuration."""
        if verb == CLOCK_SET:
            # The next look is like the first.
            self._setup = None
        self._pace.heard(verb)

    def status(self) -> dict[str, Any]:
        """What `gputopo status` shows; nothing in another mode, or where nothing is lent."""
        on = self._engine.setup.reserved is not None
        found = self._lender.counts() if on and self._lender is not None else {}
        return {"remote": {"loans": found}} if found else {}

    async def run(self) -> None:
        """Look again and again until cancelled."""
        await self._pace.keep(self._look)

    async def _look(self) -> tuple[float, float]:
        """One look -> seconds to the next if nothing happens, and between polls."""
        return await self._next_s(), POLL_S

    async def _next_s(self) -> float:
        setup = self._engine.setup
        if setup.reserved is None:
            self._is_clear = False
            return POLL_S
        lends = setup.config.remote.allow and not setup.config.kill_switch.exists()
        if self._is_clear and not lends:
            return POLL_S
        try:
            made = await asyncio.to_thread(self._the_lender(setup, setup.reserved).look, lends)
        except SlurmError as error:
            logger.warning("remote: Slurm could not be read: %s", error)
            return POLL_S
        except Exception:
            # What is kept has an end, and so have loans: the next look may work again.
            logger.exception("remote: a look at the queue failed")
            return POLL_S
        self._is_clear = not made.is_ours
        return STARTING_S if made.is_busy or made.again else POLL_S

    def _the_lender(self, setup: Setup, reserved: Reserved) -> Lender:
        """The lender of this setup; a client lives on while its settings do."""
        if self._lender is not None and self._setup is setup:
            return self._lender
        config = setup.config
        if self._client is None or self._client[0] != config.slurm:
            self._client = (config.slurm, choose.client(config.slurm))
        client = self._client[1]
        if self._lender is not None:
            self._lender.close()
        how = AtStart(config.remote.ready_s)
        lending = lending_of(config.remote, config.slurm, client, how)
        folder = config.topo_aware.profiles
        broker = Broker(
            lending,
            setup.decider.rule,
            setup.decider.waiting,
            self._engine.write,
            time.time,
            read_remote(folder) if folder else {},
        )
        self._setup = setup
        self._lender = Lender(client, broker, how, reserved, GRACE_S)
        return self._lender
