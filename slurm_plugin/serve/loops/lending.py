"""The loop that lends GPUs in the select mode; it polls often while donors start."""

from __future__ import annotations

import asyncio
from typing import Any

from slurm_plugin.act.lending.at_start.reconciler import LoanReconciler
from slurm_plugin.act.lending.at_start.start_loans import StartLoans
from slurm_plugin.queue.snapshot import Detail
from slurm_plugin.serve.loops.queue_loop import ReconcilerLoop
from slurm_plugin.serve.service import ANEW, Engine
from slurm_plugin.serve.setup import Setup

POLL_S = 5.0
#: Donors start within some tenths of a second.
STARTING_S = 0.15
#: A job whose donors are ready starts within so many seconds, or lacks something unforeseen.
GRACE_S = 30


class LendingLoop(ReconcilerLoop[LoanReconciler]):
    """Polls for as long as `enforcement: select` lends, and until what it lent has ended."""

    name = "remote"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        # A former engine may have left loans, whatever this one's configuration says.
        self._is_clear = False

    def heard(self, verb: str, is_awaited: bool = True) -> None:
        """Something happened in Slurm, or to the configuration."""
        if verb == ANEW:
            self._is_clear = False
        super().heard(verb, is_awaited)

    def status(self) -> dict[str, Any]:
        """What `gputopo status` shows; nothing in another mode, or where nothing is lent."""
        if self.engine.setup.reserved is None or self._reconciler is None:
            return {}
        counts = dict(self._reconciler.matcher.lending.counts)
        return {"remote": {"loans": counts}} if counts else {}

    def poll_s(self, setup: Setup) -> float:
        """Seconds between two polls while no loan is under way."""
        return POLL_S

    async def next_s(self, setup: Setup, since: float) -> float:
        """One poll; where nothing is lent, and no loan is left, Slurm is not asked."""
        if setup.reserved is None:
            self._is_clear = False
            return POLL_S
        lends = setup.config.remote.allow and not setup.config.kill_switch.exists()
        if self._is_clear and not lends:
            return POLL_S
        reconciler = self.reconciler(setup)
        snapshot = await setup.watcher.snapshot(since, Detail.SETTINGS)
        made = await asyncio.to_thread(reconciler.reconcile, snapshot, lends)
        if made.changes_slurm:
            setup.watcher.outdate()
        if made.lets_start:
            # Not for what is only written down: whoever waits in vain makes nobody else look.
            self.engine.ask_for_pass()
        self._is_clear = not made.is_ours
        return STARTING_S if made.is_busy or made.again else POLL_S

    def make(self, setup: Setup) -> LoanReconciler:
        """A new reconciler."""
        assert setup.reserved is not None
        updates = StartLoans(setup.config.remote.ready_s)
        matcher = self.matcher(setup, updates)
        return LoanReconciler(
            setup.client, matcher, updates, setup.reserved, GRACE_S, telemetry=setup.telemetry
        )
