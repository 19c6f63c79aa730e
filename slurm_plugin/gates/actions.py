"""Tells Slurm what a plan came to, and watches what becomes of released jobs.

A plan comes to releases, repairs, notes, and gates that stay shut. The watch writes lines of the
log, and sees whether jobs run on their slots.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_plugin.decide.record import Build, started
from slurm_plugin.errors import SlurmError
from slurm_plugin.gates.backoff import Backoff
from slurm_plugin.gates.plan import GatePlan
from slurm_plugin.gates.slot_request import slots_given
from slurm_plugin.job_notes.records import PLACED, GateRecord
from slurm_plugin.protocol import Notice
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob

logger = logging.getLogger(__name__)


class Watch:
    """Follows jobs from release to start. `mismatched` counts those on other GPUs than theirs."""

    def __init__(self, write: Callable[[Build], None]) -> None:
        self._write = write
        self._running: set[int] | None = None
        self._tasks: dict[str, Build] = {}
        self.mismatched = 0

    def released(self, name: str, job: QueuedJob, build: Build | None) -> None:
        """A release was taken by Slurm. An array's task gets its own id only then."""
        if build is None:
            return
        if job.tasks > 1:
            self._tasks[name] = build
        else:
            self._write(build)

    def look(self, queue: Sequence[QueuedJob], made: GatePlan) -> None:
        """Every job that was not running at the last look and is now."""
        ours = [job for job in queue if GateRecord.read_from(job.admin_comment)]
        for job in ours if self._tasks else ():
            build = self._tasks.pop(job.name, None)
            if build is not None:
                self._write(of_job(build, job))
        running = {job.job_id: job for job in ours if job.state == "RUNNING"}
        # After a start of the engine it is not known which of them have their line already.
        for job_id in running.keys() - (running if self._running is None else self._running):
            self._started(running[job_id])
        self._running = set(running)
        alive = {job.array_id for job in ours}
        for name in [n for n in self._tasks if n not in made.released]:
            if int(name.partition("_")[0]) not in alive:
                # It ended before any look saw its id: the array's is all there is.
                self._write(self._tasks.pop(name))

    def _started(self, job: QueuedJob) -> None:
        gpus = {name: sum(1 << i for i in found) for name, found in job.gpus.items()}
        notice = Notice("started", job.job_id, job.array_id, gpus)
        self._write(lambda: started(notice))
        kept = GateRecord.read_from(job.admin_comment)
        if kept is None or kept.state != PLACED or job.exclusive:
            return
        asked = set(slots_given(job).values())
        other = [name for name, found in job.gpus.items() if set(found) != asked]
        if other and asked:
            self.mismatched += 1
            logger.warning(
                "job %d runs on %s instead of GPUs %s", job.job_id, dict(job.gpus), asked
            )


def of_job(build: Build, job: QueuedJob) -> Build:
    """The record of a decision that was made before the job had its id."""
    return lambda: {**build(), "job": job.job_id, "array": job.array_id}


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
