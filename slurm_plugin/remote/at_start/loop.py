"""When to look: soon after a submit or an end, often while donors start, and now and then."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from slurm_plugin.config import SlurmConfig
from slurm_plugin.enforcement import Select
from slurm_plugin.engine.service import Engine
from slurm_plugin.engine.setup import Setup
from slurm_plugin.errors import SlurmError
from slurm_plugin.profiles import read_remote
from slurm_plugin.remote.at_start.lender import Lender
from slurm_plugin.remote.at_start.mode import AtStart
from slurm_plugin.remote.lending import lending_of
from slurm_plugin.slots.broker import Broker
from slurm_plugin.slurm import choose
from slurm_plugin.slurm.interface import SlurmClient

logger = logging.getLogger(__name__)

POLL_S = 5.0
#: A submit is answered before its job is in the queue; donors start within some tenths.
SUBMIT_S, STARTING_S = 0.1, 0.3
#: A job that ended holds its GPUs for a moment more: these looks follow, seconds apart.
ECHOES_S = (0.15, 0.5, 1.5)
#: A job whose donors are ready starts at once, or lacks something that nobody thought of.
GRACE_S = 30
#: So much of the time at most is spent looking.
BUSY_SHARE = 0.25


class Loop:
    """Looks for as long as `enforcement: select` lends, and until what it lent has ended."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._event = asyncio.Event()
        self._due = float("inf")
        self._echoes: list[float] = []
        self._setup: Setup | None = None
        self._lender: Lender | None = None
        self._client: tuple[SlurmConfig, SlurmClient] | None = None
        # A former engine may have left loans, whatever this one's configuration says.
        self._is_clear = False
        engine.listen(self.heard, self.status)

    def heard(self, verb: str) -> None:
        """Something happened in Slurm, or to the configuration."""
        now = time.monotonic()
        if verb == "ended":
            self._echoes = [now + later for later in ECHOES_S]
        self._wake(now + (SUBMIT_S if verb == "submit" else 0))

    def status(self) -> dict[str, Any]:
        """What `gputopo status` shows; nothing in another mode, or where nothing is lent."""
        on = isinstance(self._engine.setup.enforcement, Select)
        found = self._lender.counts() if on and self._lender is not None else {}
        return {"remote": {"loans": found}} if found else {}

    def _wake(self, due: float) -> None:
        if due < self._due:
            self._due = due
            self._event.set()

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            began = time.monotonic()
            self._due = float("inf")
            next_s = await self._look()
            ended = time.monotonic()
            self._wake(ended + next_s)
            self._echoes = [due for due in self._echoes if due > ended]
            if self._echoes:
                self._wake(self._echoes[0])
            rest_s = min((ended - began) * (1 / BUSY_SHARE - 1), POLL_S)
            while (left := max(self._due, ended + rest_s) - time.monotonic()) > 0:
                self._event.clear()
                try:
                    await asyncio.wait_for(self._event.wait(), left)
                except TimeoutError:
                    break

    async def _look(self) -> float:
        """One look; seconds to the next if nothing happens."""
        setup = self._engine.setup
        mode = setup.enforcement
        if not isinstance(mode, Select):
            self._is_clear = False
            return POLL_S
        lends = setup.config.remote.allow and not setup.config.kill_switch.exists()
        if self._is_clear and not lends:
            return POLL_S
        try:
            made = await asyncio.to_thread(self._the_lender(setup, mode).look, lends)
        except SlurmError as error:
            logger.warning("remote: Slurm could not be read: %s", error)
            return POLL_S
        except Exception:
            # What is kept has an end, and so have loans: the next look may work again.
            logger.exception("remote: a look at the queue failed")
            return POLL_S
        self._is_clear = not made.is_ours
        return STARTING_S if made.is_busy or made.again else POLL_S

    def _the_lender(self, setup: Setup, mode: Select) -> Lender:
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
            mode.decider.rule,
            mode.decider.waiting,
            self._engine.write,
            time.time,
            read_remote(folder) if folder else {},
        )
        self._setup = setup
        self._lender = Lender(client, broker, how, mode.reserved, GRACE_S)
        return self._lender
