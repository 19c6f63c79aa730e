"""Changes waiting jobs in Slurm, one after the other.

Slurm refuses to change a job that started or ended meanwhile; that is not tried again at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from slurm_plugin.errors import SlurmError
from slurm_plugin.gates.backoff import Backoff
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob

logger = logging.getLogger(__name__)

#: Jobs that get another place, and nothing else, in one look: some milliseconds each.
MOST_MOVED = 100

Updates = Sequence[tuple[QueuedJob, JobUpdate]]


class ShapeUpdates:
    """What was done so far."""

    def __init__(self) -> None:
        #: Site factors by job, as far as they are known.
        self.factors: dict[int, int] = {}
        #: How many jobs were changed.
        self.changed = 0
        #: Why Slurm refused a change of the last look; empty where it refused none.
        self.refused = ""
        self.backoff = Backoff()

    def forget(self, queue: Iterable[QueuedJob]) -> None:
        """Keep what is about jobs of this queue."""
        ids = {job.job_id for job in queue}
        self.factors = {job: one for job, one in self.factors.items() if job in ids}

    def do(self, client: SlurmClient, updates: Updates, now: float) -> None:
        """Make these changes; one that Slurm refuses stops none of the others."""
        self.refused = ""
        for job, update in updates:
            try:
                client.update([job.name], update)
            except SlurmError as error:
                self.refused = f"job {job.name}: {error}"
                self.backoff.refused(job.name, now)
                logger.warning("genie: job %s could not be changed: %s", job.name, error)
                continue
            self.changed += 1
            if update.site_factor is not None:
                self.factors[job.job_id] = update.site_factor
            self.backoff.accepted(job.name)
        self.backoff.forget(now)


def in_turn(updates: Updates) -> tuple[Updates, bool]:
    """What to do in one look, the front of a long queue first; and whether something is left."""
    only_order = 0
    now = []
    for job, update in updates:
        is_order = update == JobUpdate(site_factor=update.site_factor)
        only_order += is_order
        if not is_order or only_order <= MOST_MOVED:
            now.append((job, update))
    return now, only_order > MOST_MOVED
