"""What was said of jobs that were asked about at their start; a wait is known until it has passed.

Said by the thread that answers, while other threads read the queue and change jobs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from slurm_plugin.job_entries.issued import bound
from slurm_plugin.job_notes import hints
from slurm_plugin.job_notes.brackets import TOPO, split


class StartNotes:
    """For several threads at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        #: By job: what its bracket holds, and since when (by `clock`).
        self._new: dict[int, tuple[str, float]] = {}
        #: By job: its note, and until when (epoch) it waits.
        self._waits: dict[int, tuple[str, int]] = {}

    def add(self, job_id: int, hint: str, note: str) -> None:
        """This was said of the job, which has this hint."""
        entry = hints.entry(hint, note)
        with self._lock:
            self._new[job_id] = split(entry)[0].get(TOPO, ""), self.clock()
            bound(self._new)
            if until := hints.postponed_until(entry):
                self._waits[job_id] = (hints.note_in(entry), until)
                bound(self._waits)

    def take(self, began: float) -> dict[int, str]:
        """What our bracket holds of each job that something was said of since the last call.

        But for what was said after a reading began: it need not show what Slurm did about it.
        """
        with self._lock:
            taken = {job: text for job, (text, at) in self._new.items() if at < began}
            self._new = {job: one for job, one in self._new.items() if job not in taken}
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
