"""What was said of jobs that were asked about at their start; a wait is known until it has passed.

Said by the thread that answers, while other threads read the queue and change jobs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from slurm_plugin.base.job_notes import hints
from slurm_plugin.base.job_notes.brackets import TOPO, split
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.slurm.job_entries.issued import bound

#: Slurm's clock and ours read the same second at most so far apart.
CLOCKS_S = 2


class StartNotes:
    """For several threads at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        #: By job: what its bracket holds, and since when (by `clock`).
        self._new: dict[int, tuple[str, float]] = {}
        #: By job: what its bracket holds, and until when (epoch) it waits.
        self._waits: dict[int, tuple[str, int]] = {}

    def add(self, job_id: int, hint: str, note: str) -> None:
        """This was said of the job, which has this hint."""
        entry = hints.entry(hint, note)
        text = split(entry)[0].get(TOPO, "")
        with self._lock:
            self._new[job_id] = text, self.clock()
            bound(self._new)
            if until := hints.postponed_until(entry):
                self._waits[job_id] = (text, until)
                bound(self._waits)

    def take(self, began: float) -> dict[int, str]:
        """What our bracket holds of each job that something was said of since the last call.

        But for what was said after a reading began: it need not show what Slurm did about it.
        """
        with self._lock:
            taken = {job: text for job, (text, at) in self._new.items() if at < began}
            self._new = {job: one for job, one in self._new.items() if job not in taken}
        return taken

    def seen_in(self, job: QueuedJob) -> str:
        """What our bracket holds of a wait that a reading shows, whenever the reading began.

        By the begin time that Slurm gave the job: others may have taken the plugin's note away.
        """
        with self._lock:
            text, until = self._waits.get(job.job_id, ("", 0))
        is_shown = job.state == "PENDING" and abs(job.eligible - until) <= CLOCKS_S
        return text if is_shown else ""

    def woken(self, job_id: int) -> None:
        """The job is given another begin time: it waits no longer."""
        with self._lock:
            self._waits.pop(job_id, None)

    def wait_of(self, job_id: int, now: float) -> str:
        """The note on the job's wait; empty where it does not wait, or no longer."""
        with self._lock:
            text, until = self._waits.get(job_id, ("", 0))
        return text.partition("|")[2].strip() if until > now else ""
