"""Tells Slurm what a plan came to: releases, repairs and notes, gates that stay shut."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_plugin.decide.record import Build
from slurm_plugin.errors import SlurmError
from slurm_plugin.gates.backoff import Backoff
from slurm_plugin.gates.plan import GatePlan
from slurm_plugin.gates.watch import Watch
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import JobUpdate

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Actions:
    """Carries out one plan after the other."""

    client: SlurmClient
    watch: Watch
    write: Callable[[Build], None]
    lease_s: int
    clock: Callable[[], float]
    backoff: Backoff = field(default_factory=Backoff)
    #: Until when gates hold of which no field of Slurm's tells, by job id.
    holds_until: dict[int, float] = field(default_factory=dict)
    #: Jobs released and gated again, and updates that Slurm refused, so far.
    counts: Counter[str] = field(default_factory=Counter)

    def do(self, made: GatePlan, decided: Mapping[str, Build]) -> None:
        """Releases first: they are what people wait for.

        `decided` makes the lines of the decision log, by the names of the plan's updates.
        """
        self.counts["regated"] += made.seen["regated"]
        for release in made.releases:
            if all(self._update([name], step) for name, step in release.steps):
                self.counts["released"] += len(release.jobs)
                for name, job in release.jobs.items():
                    self.watch.released(name, job, decided.get(name))
            else:
                for name, change in release.undo:
                    self._update([name], change, quiet=True)
        for name, change in made.updates:
            if self._update([name], change) and (build := decided.get(name)):
                self.write(build)

    def renew(self, made: GatePlan) -> None:
        """Shut the gates that would open soon for another lease."""
        now = self.clock()
        if made.renew:
            until = int(now) + self.lease_s
            # Slurm refuses those that ended meanwhile, and does the others.
            self._update(made.renew, JobUpdate(begin_time=until), quiet=True)
            self.holds_until |= dict.fromkeys(made.renewed, float(until))
        self.holds_until = {job: until for job, until in self.holds_until.items() if until > now}
        self.backoff.forget(now)

    def _update(self, names: Sequence[str], change: JobUpdate, quiet: bool = False) -> bool:
        """One update of the same for all these jobs; whether Slurm took it.

        A refusal that is to be expected (`quiet`) is no reason for a pause.
        """
        try:
            self.client.update(names, change)
        except SlurmError as error:
            level = logging.DEBUG if quiet else logging.WARNING
            logger.log(level, "slots: %s: %s", ", ".join(names[:5]), error)
            if not quiet:
                self.counts["refused"] += 1
                self.backoff.refused(names[0], self.clock())
            return False
        if not quiet:
            self.backoff.accepted(names[0])
        return True
