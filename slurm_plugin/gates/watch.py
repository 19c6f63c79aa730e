"""What became of released jobs: their log lines, and whether they run on their slots."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from slurm_plugin.decide.record import Build, started
from slurm_plugin.gates.plan import GatePlan
from slurm_plugin.gates.slot_request import slots_given
from slurm_plugin.job_notes.records import PLACED, GateRecord
from slurm_plugin.protocol import Notice
from slurm_plugin.slurm.interface import QueuedJob

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
