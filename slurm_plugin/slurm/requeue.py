"""Putting a running job back into the queue, and whether Slurm would."""

from __future__ import annotations

from slurm_plugin.slurm.clients import squeue_table
from slurm_plugin.slurm.runner import Runner


def requeueable(run: Runner) -> set[int]:
    """The batch jobs in the queue that may be requeued, by id; SlurmError without an answer."""
    rows = squeue_table.read(run, ("JobId", "Requeue", "BatchFlag"))
    # The flag of a batch job grows with each of its starts that failed.
    return {int(job) for job, may, batch in rows if may == "1" and batch not in ("", "0")}


def requeue_held(run: Runner, name: str) -> None:
    """The job ends and waits, held, under its number; SlurmError with Slurm's words."""
    run(["scontrol", "requeuehold", name])
