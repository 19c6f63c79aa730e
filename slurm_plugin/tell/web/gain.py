"""What the site gained against stock Slurm, by week, user, partition and job size.

The figures are those of `gputopo report`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from slurm_plugin.base.log_lines import Line
from slurm_plugin.tell.explain.gains import Gains, JobGain, block, grouped
from slurm_plugin.tell.explain.search import attributed

#: Jobs that are summed up, the last ones; and seconds for which a sum is given out again.
MAX_JOBS, KEEP_S = 50_000, 60.0
#: Key on the page -> field of a JobGain.
KEYS = {"week": "week", "user": "uid", "partition": "partition", "size": "gpus"}
Records = Callable[[], Iterable[Line]]


class GainBook:
    """The whole log, read when somebody asks and at most once a minute."""

    def __init__(
        self,
        records: Records,
        name_of: Callable[[int], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records, self._name_of, self._clock = records, name_of, clock
        self._jobs: list[JobGain] = []
        self._read_at = float("-inf")

    @property
    def is_outdated(self) -> bool:
        """Should it be read anew?"""
        return self._clock() - self._read_at > KEEP_S

    def read(self) -> None:
        """Sum up the log, for one thread at a time; OSError where it cannot be read."""
        self._jobs = list(_last_jobs(self._records()))
        self._read_at = self._clock()

    def summary(self, uid: int | None) -> dict[str, Any]:
        """The gains of one user's jobs, or of all, by the last reading; for any thread."""
        jobs = [job for job in self._jobs if uid is None or job.uid == uid]
        placed = [job for job in jobs if job.applied]
        days = sorted({job.day for job in placed if job.day and job.ratio is not None})
        return {
            # The first and the last day, in UTC; how many seconds ago the log was read.
            "days": [days[0], days[-1]] if days else [],
            "ago_s": round(self._clock() - self._read_at, 1),
            "all": block(placed),
            "observed": block([job for job in jobs if not job.applied]),
            **{name: self._rows(grouped(placed, key), name) for name, key in KEYS.items()},
        }

    def _rows(self, groups: Mapping[Any, Any], key: str) -> list[dict[str, Any]]:
        return [
            {"name": self._name_of(name) if key == "user" else str(name or "-"), **row}
            for name, row in groups.items()
            if row["compared"]
        ]


def _last_jobs(records: Iterable[Line]) -> Iterable[JobGain]:
    gains = Gains()
    for record in attributed(records):
        gains.add(record)
        if len(gains.jobs) > MAX_JOBS:
            del gains.jobs[next(iter(gains.jobs))]
    return gains.jobs.values()
