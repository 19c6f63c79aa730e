"""Every waiting job gets its own request back: before the slots mode is removed, or while it is
switched off."""

from __future__ import annotations

import logging

from slurm_plugin.act.gates import change
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import QueuedJob

logger = logging.getLogger(__name__)


def waiting(client: SlurmClient) -> list[tuple[QueuedJob, GateRecord]]:
    """Pending jobs with our bracket, by id. Raises SlurmError when Slurm does not answer."""
    records = ((job, GateRecord.read_from(job.admin_comment)) for job in client.queue())
    return [(job, kept) for job, kept in records if kept is not None and job.state == "PENDING"]


def give_back(client: SlurmClient) -> int:
    """Leave every waiting job to Slurm; how many there were.

    Raises SlurmError when Slurm does not answer, or refused some (the others are done).
    """
    refused, done = [], 0
    for job, kept in waiting(client):
        try:
            client.update([job.name], change.give_back(job, kept, ""))
            done += 1
        except SlurmError as error:
            refused.append(f"{job.name}: {error}")
    if refused:
        first = "; ".join(refused[:5])
        raise SlurmError(f"{done} jobs were given back, {len(refused)} were not: {first}")
    return done
