"""What was said of jobs that were asked about at their start; a wait is known until it has passed.

Said by the thread that answers, while other threads read the queue and change jobs.
"""

from __future__ import annotations

import threading

from slurm_plugin.job_entries.issued import bound
from slurm_plugin.job_notes import hints
from slurm_plugin.job_notes.brackets import TOPO, split


class StartNotes:
    """For several threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._new: dict[int, str] = {}
        #: By job: its note, and until when (epoch) it waits.
        self._waits: dict[int, tuple[str, int]] = {}

    def add(self, job_id: int, hint: str, note: str) -> None:
        """This was said of the job, which has this hint."""
        entry = hints.entry(hint, note)
        with self._lock:
            self._new[job_id] = split(entry)[0].get(TOPO, "")
            bound(self._new)
            if until := hints.postponed_until(entry):
                self._waits[job_id] = (hints.note_in(entry), until)
                bound(self._waits)

    def take(self) -> dict[int, str]:
        """What our bracket holds of each job that something was said of since the last call."""
        with self._lock:
            taken, self._new = self._new, {}
        return taken

    def woken(self, job_id: int) -> None:
        """The job is given another begin time: it waits no longer."""
        with self._lock:
            self._waits.pop(job_id, None)

    def wait_of(self, job_id: int, now: float) -> str:
        """The note on the job's wait; empty where it does not wait, or no longer."""
        with self._lock:
            note, until = self._waits.get(job_id, ("", 0))
        return note if until > now else ""
