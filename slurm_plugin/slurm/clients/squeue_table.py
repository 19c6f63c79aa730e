"""squeue's columns, read so that no user's text can pass for another column.

`squeue -O` ends each field with a text of our choice, which nobody can guess.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace

from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.slurm.runner import Runner

#: What squeue prints for a text that is not set.
_UNSET = ("(null)", "N/A", "n/a")
# Ends each field of `lines` but the last.
_END = "\0"


def read(run: Runner, columns: Sequence[str], job: int = 0) -> Iterator[list[str]]:
    """The columns (squeue's long names) of every job in the queue, or of one; unset ones ''.

    Raises SlurmError for a table that is not whole.
    """
    return (fields(line, columns) for line in lines(run, columns, job))


def lines(run: Runner, columns: Sequence[str], job: int = 0) -> list[str]:
    """The same, a text per job that is equal as long as its columns are; `fields` reads it."""
    end, last = f"\x1f{secrets.token_urlsafe(8)}", f"\x1f{secrets.token_urlsafe(8)}"
    *others, final = columns
    wanted = ",".join([*(f"{name}:0{end}" for name in others), f"{final}:0{last}"])
    # -r: else squeue makes one job of array tasks that wait, even of those changed by themselves.
    argv = ["squeue", "-h", "-a", "-r", "--noconvert", "-O", wanted]
    argv += ["-j", str(job)] if job else []
    # None of Slurm's texts has a NUL in it.
    *found, tail = run(argv).replace(end, _END).split(last)
    if tail.strip():
        raise SlurmError(f"squeue -O {','.join(columns)}: ends within a job: {tail[-60:]!r}")
    # The line break after a job stands before the next one's first field.
    return [line.lstrip("\n") for line in found]


def fields(line: str, columns: Sequence[str]) -> list[str]:
    """The columns of one of `lines`; unset ones ''. Raises SlurmError where some are missing."""
    row = line.split(_END)
    if len(row) != len(columns):
        raise SlurmError(
            f"squeue -O {','.join(columns)}: {len(row)} fields; expected {len(columns)}"
        )
    return ["" if text in _UNSET else text for text in row]


def with_cpus_per_task(run: Runner, jobs: Sequence[QueuedJob]) -> list[QueuedJob]:
    """The jobs with their CPUs per task, which 22.05's JSON always has as null."""
    cpus = {int(job): int(text or 0) for job, text in read(run, ("JobId", "cpus-per-task"))}
    return [replace(job, cpus_per_task=cpus.get(job.job_id, 0)) for job in jobs]


def with_exclusive(run: Runner, jobs: list[QueuedJob]) -> list[QueuedJob]:
    """The jobs, as squeue of 26.05 tells which are exclusive."""
    by_id = {int(job): text == "NODE" for job, text in read(run, ("JobId", "Exclusive"))}
    return [replace(job, exclusive=by_id.get(job.job_id, job.exclusive)) for job in jobs]
