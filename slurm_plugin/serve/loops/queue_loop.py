"""What the loops that poll Slurm's queue have in common: a schedule each, one watcher for all."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from slurm_plugin.act.lending.donors import LoanUpdates, slurm_loans
from slurm_plugin.act.lending.matcher import LoanMatcher
from slurm_plugin.errors import SlurmError
from slurm_plugin.learn.job_profiles import read_profiles
from slurm_plugin.serve.loops.poll_schedule import PollSchedule
from slurm_plugin.serve.service import ANEW, Engine
from slurm_plugin.serve.setup import Setup

logger = logging.getLogger(__name__)

Reconciler = TypeVar("Reconciler")


class QueueLoop(ABC):
    """Polls again and again, whatever one poll comes to."""

    #: What the engine's log calls it.
    name = ""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.schedule = PollSchedule()
        #: The settings under which the loop began to remember; None: it begins anew.
        self._setup: Setup | None = None
        self._is_failing = False
        engine.listen(self.heard, self.status)

    def heard(self, verb: str, is_awaited: bool = True) -> None:
        """Something happened in Slurm, or to the configuration."""
        if verb == ANEW:
            # What was remembered was timed by the old clock, or others have acted since.
            self._setup = None
        self.schedule.heard(verb, is_awaited)

    def status(self) -> dict[str, Any]:
        """What it adds to `gputopo status`."""
        return {}

    @abstractmethod
    def poll_s(self, setup: Setup) -> float:
        """Seconds between two polls if no event comes."""

    @abstractmethod
    async def next_s(self, setup: Setup, since: float) -> float:
        """One poll, which must see all that happened before `since` (monotonic seconds).

        Returns the seconds to the next one if no event comes.
        """

    async def poll(self, since: float) -> tuple[float, float]:
        """One poll; the seconds to the next if no event comes, and `poll_s`.

        None while another host's slurmctld is in charge: even reading repairs comments.
        """
        setup = self.engine.setup
        poll_s = self.poll_s(setup)
        if not setup.keeper.is_in_charge():
            return poll_s, poll_s
        try:
            next_s = await self.next_s(setup, since)
        except SlurmError as error:
            # An outage may last for hours of polls.
            if not self._is_failing:
                logger.warning("%s: Slurm could not be read: %s", self.name, error)
            self._is_failing = True
        except Exception:
            # Promises and kept GPUs run out by themselves: the next poll may work again.
            logger.exception("%s: a poll of the queue failed", self.name)
        else:
            if self._is_failing:
                logger.info("%s: Slurm is read again", self.name)
            self._is_failing = False
            return next_s, poll_s
        setup.telemetry.failed_polls[self.name] += 1
        # It may have changed something before.
        setup.watcher.outdate()
        return poll_s, poll_s


class RegularLoop(QueueLoop):
    """A loop that polls at regular times, and where all is to be read anew."""

    def heard(self, verb: str, is_awaited: bool = True) -> None:
        """Something happened in Slurm, or to the configuration."""
        if verb in ("reload", ANEW):
            super().heard(verb)


class ReconcilerLoop(QueueLoop, Generic[Reconciler]):
    """A loop with a reconciler that remembers things: each configuration gets a new one."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._reconciler: Reconciler | None = None
        self._matcher: LoanMatcher | None = None

    def reconciler(self, setup: Setup) -> Reconciler:
        """The reconciler of this setup."""
        if self._reconciler is None or self._setup is not setup:
            self._setup, self._reconciler = setup, self.make(setup)
        return self._reconciler

    @abstractmethod
    def make(self, setup: Setup) -> Reconciler:
        """A new reconciler."""

    def matcher(self, setup: Setup, updates: LoanUpdates) -> LoanMatcher:
        """Who lends to jobs by this setup, in the mode of `updates`; the former one is closed."""
        if self._matcher is not None:
            self._matcher.close()
        config, decider = setup.config, setup.decider
        lending = slurm_loans(
            config.remote, config.slurm, setup.client, updates, setup.keeper.check
        )
        profiles = read_profiles(config.topo_aware.profiles).remote
        self._matcher = LoanMatcher(
            lending, decider.rule, decider.waiting, self.engine.write, time.time, profiles
        )
        return self._matcher
