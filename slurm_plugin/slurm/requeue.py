"""Putting a running job back into the queue, and whether Slurm would."""

from __future__ import annotations

from slurm_plugin.slurm.clients import squeue_table
from slurm_plugin.slurm.runner import Runner


def requeueable(run: Runner) -> set[int]:
    """The batch jobs in the queue that may be requeued, by id; SlurmError without an answer."""
    rows = squeue_table.read(run, ("JobId", "Requeue", "BatchFlag"))
    return {int(job) for job, may, is_batch in rows if may == is_batch == "1"}


def requeue_held(run: Runner, name: str) -> None:
    """The job ends and waits, held, under its number; SlurmError with Slurm's words."""
    run(["scontrol", "requeuehold", name])
