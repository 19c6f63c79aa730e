"""What the loops that look at Slurm's queue have in common.

Each has its own schedule; the snapshots that they look at come from the one watcher.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from slurm_plugin.errors import SlurmError
from slurm_plugin.job_profiles import read_remote
from slurm_plugin.lending.donors import LoanUpdates, slurm_loans
from slurm_plugin.lending.matcher import LoanMatcher
from slurm_plugin.serve.clock_watch import CLOCK_SET
from slurm_plugin.serve.poll_schedule import PollSchedule
from slurm_plugin.serve.service import Engine
from slurm_plugin.serve.setup import Setup

logger = logging.getLogger(__name__)


def loan_matcher(engine: Engine, updates: LoanUpdates) -> LoanMatcher:
    """Who lends to jobs by the present configuration, in the mode of `updates`."""
    setup, config = engine.setup, engine.setup.config
    lending = slurm_loans(config.remote, config.slurm, setup.client, updates)
    rule, waiting = setup.decider.rule, setup.decider.waiting
    folder = config.topo_aware.profiles
    profiles = read_remote(folder) if folder else {}
    return LoanMatcher(lending, rule, waiting, engine.write, time.time, profiles)


class QueueLoop:
    """Looks again and again, whatever a look comes to."""

    #: What the engine's log calls it.
    name = ""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.schedule = PollSchedule()
        # Whose settings the parts that remember something were made by.
        self._setup: Setup | None = None
        engine.listen(self.heard, self.status)

    def heard(self, verb: str, is_awaited: bool = True) -> None:
        """Something happened in Slurm, or to the configuration."""
        if verb == CLOCK_SET:
            # The next look is like the first.
            self._setup = None
        self.schedule.heard(verb, is_awaited)

    def status(self) -> dict[str, Any]:
        """What it adds to `gputopo status`."""
        return {}

    def poll_s(self, setup: Setup) -> float:
        """Seconds between two looks if nothing is heard."""
        raise NotImplementedError

    async def next_s(self, setup: Setup, since: float) -> float:
        """One look, which must see all that happened before `since` (monotonic seconds).

        Seconds to the next one if nothing is heard.
        """
        raise NotImplementedError

    async def look(self, since: float) -> tuple[float, float]:
        """One look -> seconds to the next if nothing is heard, and between polls."""
        setup = self.engine.setup
        poll_s = self.poll_s(setup)
        try:
            return await self.next_s(setup, since), poll_s
        except SlurmError as error:
            logger.warning("%s: Slurm could not be read: %s", self.name, error)
        except Exception:
            # Whatever is promised or kept has an end: the next look may work again.
            logger.exception("%s: a look at the queue failed", self.name)
        # It may have changed something before.
        setup.watcher.outdate()
        return poll_s, poll_s
