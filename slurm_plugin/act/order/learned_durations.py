"""How long the site's jobs take, learned from one reading of the queue to the next.

The watcher shows every reading, so that who orders jobs and who looks ahead go by the same. A job's
name and command are its user's text: they count as hashes and are written nowhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import msgspec

from policies.order.durations import KnownJob, Learning
from slurm_plugin.base.rows_file import RowsFile
from slurm_plugin.queue.coming import asked_of
from slurm_plugin.slurm.interface import QueuedJob

#: What is kept of run times, in the state directory; a larger file was not written by us.
NAME, MAX_BYTES = "learned-durations.json", 32 << 20
#: Seconds between two writings of the file.
SAVE_S = 60.0
#: A job's end is known to lie between two readings. Where these are further apart (seconds, and as
#: a part of the run) it teaches nothing.
LONGEST_GAP_S, LARGEST_GAP = 60.0, 0.25


class _Row(msgspec.Struct, array_like=True):
    key: bytes
    steps: bytes
    #: The key of the user whose it is; files of earlier versions do not say.
    user: bytes = b""


def known_of(job: QueuedJob) -> KnownJob:
    """What is known of a job before it starts."""
    asked = asked_of(job)
    size = sum(asked.gpus_per_node) if asked is not None else sum(map(len, job.gpus.values()))
    limit_s = float(job.time_limit_s) if job.time_limit_s else None
    return KnownJob(job.user, job.account, job.job_name, size, job.command, limit_s)


@dataclass(slots=True)
class LearnedDurations:
    """Follows the jobs with GPUs; lives on from one configuration to the next."""

    learning: Learning = field(default_factory=Learning)
    clock: Callable[[], float] = time.monotonic
    _file: RowsFile[_Row] | None = None
    #: Job -> when it began (epoch), and when the queue was read last.
    _started: dict[int, int] = field(default_factory=dict)
    _read_at: float = 0.0
    _saved: float = float("-inf")
    #: Something was learned since.
    _is_new: bool = False
    #: Several threads show readings while a configuration is replaced.
    _lock: Lock = field(default_factory=Lock)

    def open(self, folder: Path) -> None:
        """Go on from the file in this state directory, unless that is done."""
        with self._lock:
            if self._file is None or self._file.path.parent != folder:
                self._file = RowsFile(folder / NAME, list[_Row], MAX_BYTES, 0o640)
                self._load()

    def reopen(self) -> None:
        """Another engine acted meanwhile: what is known is in its file."""
        with self._lock:
            self._started.clear()
            self._load()

    def _load(self) -> None:
        if self._file is not None:
            durations = self.learning.durations
            rows = self._file.read()
            users = {row.key: row.user for row in rows}
            durations.load({row.key: row.steps for row in rows}, users)

    def look(self, jobs: Iterable[QueuedJob], at: float) -> None:
        """The queue as it was read at this time (epoch): learn from the jobs that are gone."""
        with self._lock:
            there = {job.job_id: job for job in jobs}
            for job_id in self.learning.followed() - there.keys():
                ran_s = self._ran_s(self._started.pop(job_id, None), at)
                self.learning.ended(job_id, ran_s)
                self._is_new |= ran_s is not None
            for job_id, job in there.items():
                if not self.learning.follows(job_id) and (known := known_of(job)).size:
                    self.learning.submitted(job_id, known)
                if job.state == "PENDING":
                    # Perhaps again: it was requeued.
                    self._started.pop(job_id, None)
                elif job.start and self.learning.follows(job_id):
                    self._started.setdefault(job_id, job.start)
            self._read_at = at
            self._save()

    def took_s(self, job_id: int) -> Sequence[float]:
        """Run times of its user's jobs like this one, ascending; none where too few are known."""
        return self.learning.took_s(job_id)

    def _ran_s(self, start: int | None, at: float) -> float | None:
        """How long a job ran that is gone now; None where that is not known well.

        Its end is taken to lie in the middle of the time in which it may.
        """
        if start is None:
            return None
        longest_s, gap_s = at - start, at - self._read_at
        ran_s = longest_s - min(longest_s, gap_s) / 2
        return ran_s if gap_s <= max(LONGEST_GAP_S, LARGEST_GAP * longest_s) else None

    def _save(self) -> None:
        now = self.clock()
        if self._file is not None and self._is_new and now - self._saved > SAVE_S:
            self._saved = now
            kept = self.learning.durations
            rows = [_Row(key, steps, kept.user_of(key)) for key, steps in kept.items()]
            # On a full disk it is tried again.
            self._is_new = not self._file.write(rows)
