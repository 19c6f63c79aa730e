"""Our entries about jobs on disk: for an engine that starts anew, and for `gputopo explain`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from slurm_plugin.base.job_notes.brackets import joined
from slurm_plugin.base.rows_file import RowsFile
from slurm_plugin.slurm.interface import QueuedJob

#: The file in the state directory.
NAME = "job-entries.json"
#: Jobs that are written to the file, the last ones; and its size: a larger one is none of ours.
MOST_SAVED, MAX_BYTES = 50_000, 128 << 20


@dataclass(slots=True)
class JobEntries:
    """One job, and our entries about it by kind, the whole of each."""

    job: int
    uid: int = -1
    array: int = 0
    het: int = 0
    #: Epoch; Slurm gives a requeued job a new one.
    submit: int = 0
    #: The state in which it was last seen.
    state: str = ""
    ours: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """Our entries as they would stand in AdminComment."""
        return joined(self.ours, "")

    def is_of(self, job: QueuedJob) -> bool:
        """Is this the same job, and not a later one with its number?"""
        return self.is_like(job) and self.submit == job.submit

    def is_like(self, job: QueuedJob) -> bool:
        """May it be the same job, if Slurm requeued it?"""
        return (self.uid, self.array, self.het) == (job.uid, job.array_id, job.het_id)


def entry_file(path: Path) -> RowsFile[JobEntries]:
    """All jobs' entries in one file."""
    return RowsFile(path, list[JobEntries], MAX_BYTES, 0o600)


def entries_in(file: RowsFile[JobEntries], foreign: str) -> dict[int, JobEntries]:
    """The jobs in the file by id, without entries of the `foreign` kind."""
    jobs = {one.job: one for one in file.read()}
    for one in jobs.values():
        one.ours.pop(foreign, None)
    return jobs


def readable(path: Path) -> dict[int, JobEntries]:
    """The jobs in an engine's file by id; none where this user may not read it."""
    return {one.job: one for one in entry_file(path).read()} if os.access(path, os.R_OK) else {}
