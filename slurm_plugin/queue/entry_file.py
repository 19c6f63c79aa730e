"""Our entries about jobs on disk: for an engine that starts anew, and for `gputopo explain`."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from slurm_plugin import whole_file
from slurm_plugin.errors import PluginError
from slurm_plugin.job_notes.brackets import joined
from slurm_plugin.slurm.interface import QueuedJob

logger = logging.getLogger(__name__)

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


@dataclass(slots=True)
class EntryFile:
    """All jobs' entries in one file, replaced as a whole."""

    path: Path
    _is_failing: bool = False

    def write(self, rows: Sequence[JobEntries]) -> bool:
        """Whether it was written; a disk that is full costs a line in the log."""
        try:
            whole_file.replace(self.path, msgspec.json.encode(rows[-MOST_SAVED:]), 0o600)
        except PluginError as error:
            if not self._is_failing:
                logger.error("jobs' entries: %s; going on, and trying again", error)
            self._is_failing = True
            return False
        if self._is_failing:
            logger.warning("jobs' entries: %s is written again", self.path)
        self._is_failing = False
        return True

    def read(self) -> dict[int, JobEntries]:
        """The jobs by id; none, and a line in the log, where the file cannot be read."""
        try:
            if self.path.stat().st_size > MAX_BYTES:
                logger.error("%s: larger than %d MiB; starting anew", self.path, MAX_BYTES >> 20)
                return {}
            rows = msgspec.json.decode(self.path.read_bytes(), type=list[JobEntries])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            logger.error("%s: cannot be read: %s; starting anew", self.path, why)
            return {}
        return {one.job: one for one in rows}


def readable(path: Path) -> dict[int, JobEntries]:
    """The jobs in an engine's file by id; none where this user may not read it."""
    return EntryFile(path).read() if os.access(path, os.R_OK) else {}
