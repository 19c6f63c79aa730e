"""The loop that opens the gates of jobs that wait for slots."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Any

from slurm_plugin.act.gates.capacity_cache import PROMISE_S
from slurm_plugin.act.gates.reconciler import GateReconciler
from slurm_plugin.act.gates.slot_loans import SlotLoans
from slurm_plugin.queue.snapshot import Detail
from slurm_plugin.serve.give_back import give_back
from slurm_plugin.serve.loops.poll_schedule import SUBMIT_S
from slurm_plugin.serve.loops.queue_loop import ReconcilerLoop
from slurm_plugin.serve.service import ANEW, Engine
from slurm_plugin.serve.setup import Setup

logger = logging.getLogger(__name__)

#: A job with its slots starts within some tenths of a second.
STARTING_S = 0.3
#: So do donors, and slurmctld looks at its queue once a second: who is seen too late waits for one
#: more look.
MEETING_S = 0.15
#: Jobs are not placed by figures that this many polls have not renewed.
MISSED_POLLS = 3


class GatesLoop(ReconcilerLoop[GateReconciler]):
    """Polls for as long as the engine's configuration says `enforcement: slots`."""

    name = "slots"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._is_off = False

    def heard(self, verb: str, is_awaited: bool = True) -> None:
        """Something happened in Slurm, or to the configuration."""
        cache = self.engine.setup.cache
        if cache is None:
            # Another mode is on; only a new configuration changes that.
            if verb == "reload":
                super().heard(verb)
            return
        if verb == ANEW:
            cache.forget_all()
        if verb == "submit" and not cache.has_news:
            return
        if verb == "ended":
            cache.ended += 1
        super().heard(verb, cache.is_awaited)

    def status(self) -> dict[str, Any]:
        """What `gputopo status` shows of the slots mode; nothing in another mode."""
        on = self.engine.setup.cache is not None
        return {"slots": self._reconciler.status()} if on and self._reconciler is not None else {}

    def poll_s(self, setup: Setup) -> float:
        """Seconds between two polls if no event comes."""
        return setup.config.slots.poll_s

    async def next_s(self, setup: Setup, since: float) -> float:
        """One poll, unless another mode is on or the kill switch is set."""
        cache, poll_s = setup.cache, self.poll_s(setup)
        if cache is None:
            return poll_s
        reconciler = self.reconciler(setup)
        if setup.config.kill_switch.exists():
            await self._give_back(setup, reconciler, since)
            return poll_s
        self._is_off = False
        began = monotonic()
        async with self.engine.turn:
            known = cache.ended
            if self.schedule.has_news or cache.promises:
                snapshot = await setup.watcher.snapshot(since, Detail.SETTINGS)
            else:
                snapshot = await setup.watcher.changes(since)
            made = await reconciler.reconcile(snapshot, known)
            if made.changes_slurm:
                setup.watcher.outdate()
            else:
                setup.watcher.renewed(made.renewed)
        # On a busy host, or while it makes loans, a poll takes longer than the time between two.
        cache.fresh_s = MISSED_POLLS * max(poll_s, monotonic() - began)
        if made.again:
            return SUBMIT_S
        if made.offers or made.seen["loan meets"]:
            return min(poll_s, MEETING_S)
        if made.seen["placed"] or made.releases:
            # Policies want to know who runs, and repairs when somebody does not.
            return min(poll_s, STARTING_S)
        # A promise that no job took up must give its GPUs back in time.
        return min(poll_s, PROMISE_S) if cache.promises else poll_s

    async def _give_back(self, setup: Setup, reconciler: GateReconciler, since: float) -> None:
        """Make waiting jobs Slurm's own; at every poll, as the bridge may still gate some."""
        if not self._is_off:
            logger.warning("slots: switched off; waiting jobs are given back to Slurm")
            self._is_off = True
        snapshot = await setup.watcher.snapshot(since)
        # No donor outlives its borrower.
        await asyncio.to_thread(reconciler.matcher.lending.tidy, snapshot.jobs)
        await asyncio.to_thread(give_back, setup.client)

    def make(self, setup: Setup) -> GateReconciler:
        """A new reconciler."""
        config, cache = setup.config, setup.cache
        assert cache is not None
        cache.fresh_s = MISSED_POLLS * config.slots.poll_s
        return GateReconciler(
            client=setup.client,
            decider=setup.decider,
            cache=cache,
            write=self.engine.write,
            lease_s=config.slots.lease_s,
            grace_s=config.slots.grace_s,
            neighbours=setup.neighbours,
            matcher=self.matcher(setup, SlotLoans()),
            hold_reason=setup.shaping.hold_reason if setup.shaping is not None else None,
            telemetry=setup.telemetry,
        )
