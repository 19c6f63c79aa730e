"""What the site gained against stock Slurm, by week, user, partition and job size.

The figures are those of `gputopo report`.
"""

from __future__ import annotations

import pwd
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.decide import decision_log
from slurm_plugin.explain.gains import Gains, JobGain, block, grouped
from slurm_plugin.explain.search import attributed

#: Jobs that are summed up, the last ones; and seconds for which a sum is given out again.
MAX_JOBS, KEEP_S = 50_000, 60.0
#: Key on the page -> field of a JobGain.
KEYS = {"week": "week", "user": "uid", "partition": "partition", "size": "gpus"}
Records = Callable[[], Iterable[dict[str, Any]]]


class GainBook:
    """The whole log, read when somebody asks and at most once a minute; for threads, one by one."""

    def __init__(self, records: Records, clock: Callable[[], float] = time.monotonic) -> None:
        self._records, self._clock = records, clock
        self._jobs: list[JobGain] = []
        self._read_at = float("-inf")

    @classmethod
    def of_log(cls, config: DecisionLogConfig) -> GainBook:
        """Of the decision log and its rotated files."""
        return cls(lambda: decision_log.read(config))

    def summary(self, uid: int | None) -> dict[str, Any]:
        """The gains of one user's jobs, or of all; OSError where the log cannot be read."""
        if self._clock() - self._read_at > KEEP_S:
            self._jobs = list(_last_jobs(self._records()))
            self._read_at = self._clock()
        jobs = [job for job in self._jobs if uid is None or job.uid == uid]
        placed = [job for job in jobs if job.applied]
        return {
            "all": block(placed),
            "observed": block([job for job in jobs if not job.applied]),
            **{name: _rows(grouped(placed, key), name) for name, key in KEYS.items()},
        }


def _last_jobs(records: Iterable[dict[str, Any]]) -> Iterable[JobGain]:
    gains = Gains()
    for record in attributed(records):
        gains.add(record)
        if len(gains.jobs) > MAX_JOBS:
            del gains.jobs[next(iter(gains.jobs))]
    return gains.jobs.values()


def _rows(groups: Mapping[Any, Any], key: str) -> list[dict[str, Any]]:
    return [
        {"name": _user(name) if key == "user" else str(name or "-"), **row}
        for name, row in groups.items()
        if row["compared"]
    ]


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
