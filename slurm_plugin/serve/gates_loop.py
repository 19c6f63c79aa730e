"""Looks at the queue, and at the jobs of it that wait for slots."""

from __future__ import annotations

import logging
from typing import Any

from slurm_plugin.config.sections import SlurmConfig
from slurm_plugin.errors import SlurmError
from slurm_plugin.gates.capacity_cache import PROMISE_S, CapacityCache
from slurm_plugin.gates.reconciler import GateReconciler
from slurm_plugin.gates.slot_loans import SlotLoans
from slurm_plugin.job_profiles import read_remote
from slurm_plugin.lending.donors import lending_of
from slurm_plugin.serve.clock_watch import CLOCK_SET
from slurm_plugin.serve.pace import SUBMIT_S, Pace
from slurm_plugin.serve.service import Engine
from slurm_plugin.serve.setup import Setup
from slurm_plugin.slurm import choose
from slurm_plugin.slurm.interface import SlurmClient

logger = logging.getLogger(__name__)

#: A job with its slots starts within some tenths of a second.
STARTING_S = 0.3
#: Figures that so many polls have not renewed are no ground to place on.
MISSED_POLLS = 3


class Loop:
    """Looks for as long as the engine's configuration says `enforcement: slots`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pace = Pace()
        self._setup: Setup | None = None
        self._planner: GateReconciler | None = None
        self._client: tuple[SlurmConfig, SlurmClient] | None = None
        self._is_off = False
        engine.listen(self.heard, self.status)

    def heard(self, verb: str) -> None:
        """Something happened in Slurm, or to the configuration."""
        cache = self._engine.setup.cache or CapacityCache()
        if verb == CLOCK_SET:
            # The next look is like the first.
            self._setup = None
            cache.forget_all()
        if verb == "submit" and not cache.has_news:
            return
        if verb == "ended":
            cache.ended += 1
        self._pace.heard(verb, cache.is_awaited)

    def status(self) -> dict[str, Any]:
        """What `gputopo status` shows of the slots mode; nothing in another mode."""
        on = self._engine.setup.cache is not None
        return {"slots": self._planner.status()} if on and self._planner is not None else {}

    async def run(self) -> None:
        """Look again and again until cancelled."""
        await self._pace.keep(self._look)

    async def _look(self) -> tuple[float, float]:
        """One look -> seconds to the next if nothing happens, and between polls."""
        poll_s = self._engine.setup.config.slots.poll_s
        return await self._next_s(poll_s), poll_s

    async def _next_s(self, poll_s: float) -> float:
        setup = self._engine.setup
        if setup.cache is None:
            return poll_s
        try:
            planner = self._the_planner(setup, setup.cache)
            if setup.config.kill_switch.exists():
                await self._give_back(planner)
                return poll_s
            self._is_off = False
            async with self._engine.turn:
                made = await planner.look()
        except SlurmError as error:
            logger.warning("slots: Slurm could not be read: %s", error)
            return poll_s
        except Exception:
            # A gate that is not renewed opens: the next look may work again.
            logger.exception("slots: a look at the queue failed")
            return poll_s
        if made.again:
            return SUBMIT_S
        if made.seen["placed"] or made.releases or made.offers or made.seen["loan meets"]:
            # Policies want to know who runs, and repairs when somebody does not.
            return min(poll_s, STARTING_S)
        # A promise nobody took up gives its GPUs back in time.
        return min(poll_s, PROMISE_S) if setup.cache.has_promised else poll_s

    async def _give_back(self, planner: GateReconciler) -> None:
        """The kill switch: waiting jobs are Slurm's own.

        Again at every poll: the bridge may have gated one more by an answer of before.
        """
        if not self._is_off:
            logger.warning("slots: switched off; waiting jobs are given back to Slurm")
            self._is_off = True
        await planner.look_after_donors()
        await planner.give_all_back()

    def _the_planner(self, setup: Setup, cache: CapacityCache) -> GateReconciler:
        """The planner of this setup; a client lives on while its settings do."""
        if self._planner is not None and self._setup is setup:
            return self._planner
        config = setup.config
        if self._client is None or self._client[0] != config.slurm:
            self._client = (config.slurm, choose.client(config.slurm))
        if self._planner is not None:
            self._planner.close()
        self._setup = setup
        folder = config.topo_aware.profiles
        cache.fresh_s = MISSED_POLLS * config.slots.poll_s
        self._planner = GateReconciler(
            self._client[1],
            setup.decider,
            cache,
            self._engine.write,
            lease_s=config.slots.lease_s,
            grace_s=config.slots.grace_s,
            neighbours=setup.neighbours,
            lending=lending_of(config.remote, config.slurm, self._client[1], SlotLoans()),
            profiles=read_remote(folder) if folder else {},
            hold_reason=setup.shaping.hold_reason if setup.shaping is not None else None,
        )
        return self._planner
