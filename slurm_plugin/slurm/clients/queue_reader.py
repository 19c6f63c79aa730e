"""Reads the queue by Slurm's commands; only jobs that changed since the last time cost much.

No user's text can forge scontrol's JSON, but it costs a quarter of a second of CPU for a thousand
jobs; `squeue -O` costs a fiftieth. So squeue's table says which jobs are unchanged, and only the
others are read as JSON. State, reason, priority and the times are taken from the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.clients import rows, squeue_table
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.slurm.runner import Runner

_TABLE = ("State", "Reason", "PriorityLong", "StartTime", "EligibleTime")
# A job is read anew where the text of one of these columns changed: all else that can change.
_WATCHED = (
    "ArrayTaskId", "HetJobOffset", "Account", "Partition", "EndTime", "TimeLimit", "Dependency",
    "NodeList", "NumNodes", "MaxNodes", "NumTasks", "NumCPUs", "cpus-per-task", "cpus-per-tres",
    "MinCPUs", "MinMemory", "mem-per-tres", "tres-per-node", "tres-per-job", "tres-per-task",
    "tres-per-socket", "Feature", "ReqNodes", "ExcNodes", "Reservation", "OverSubscribe",
    "SubmitTime", "Comment", "admin_comment",
)  # fmt: skip
_COLUMNS = ("JobId", *_TABLE, *_WATCHED)
_STATE, _END = _COLUMNS.index("State"), _COLUMNS.index("EndTime")
#: More than so many changed jobs are cheaper to read all at once.
FEW = 12


class _Seen(NamedTuple):
    """One job in the table: what it is taken from, and what tells a change."""

    now: tuple[str, ...]
    watched: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class _Known:
    """A job as JSON has it, and the table's row of that moment."""

    watched: tuple[tuple[str, ...], ...]
    job: QueuedJob


class QueueReader:
    """Reads the queue again and again; one per client, used from one thread."""

    def __init__(self, run: Runner, all_jobs: tuple[str, ...], one_job: tuple[str, ...]) -> None:
        self._run = run
        self._all_jobs = all_jobs
        self._one_job = one_job
        self._known: dict[int, _Known] = {}

    def read(self) -> list[QueuedJob]:
        """Every job that waits or holds resources, by id."""
        table = self._table()
        stale = [job_id for job_id, seen in table.items() if not self._is_known(job_id, seen)]
        fresh = {job.job_id: job for job in self._ask(stale)}
        known = {}
        for job_id, seen in table.items():
            if job_id in fresh:
                # As JSON has it, though the table may be older: then it is read anew next time.
                known[job_id] = _Known(seen.watched, fresh[job_id])
            elif self._is_known(job_id, seen):
                was = self._known[job_id]
                known[job_id] = _Known(was.watched, _now(was.job, seen.now))
        self._known = known
        jobs = (known.job for known in known.values() if known.job.state)
        return sorted(jobs, key=lambda job: job.job_id)

    def _table(self) -> dict[int, _Seen]:
        """The jobs in the table; an array's waiting tasks are rows of one job id."""
        rows_by_id: dict[int, _Seen] = {}
        first = 1 + len(_TABLE)
        for row in squeue_table.read(self._run, _COLUMNS):
            if row[_STATE] == "PENDING":
                # An estimate, which changes for all jobs whose gates are renewed.
                row[_END] = ""
            job_id, watched = int(row[0]), tuple(row[first:])
            before = rows_by_id.get(job_id)
            if before is None:
                rows_by_id[job_id] = _Seen(tuple(row[1:first]), (watched,))
            else:
                rows_by_id[job_id] = _Seen(before.now, (*before.watched, watched[:1]))
        return rows_by_id

    def _is_known(self, job_id: int, seen: _Seen) -> bool:
        known = self._known.get(job_id)
        return known is not None and known.watched == seen.watched

    def _ask(self, stale: list[int]) -> list[QueuedJob]:
        """These jobs as JSON tells them (and perhaps others)."""
        if not stale:
            return []
        if len(stale) <= FEW:
            try:
                return [job for job_id in stale for job in self._ask_one(job_id)]
            except SlurmError:
                # One of them may be gone by now: the long list does not mind.
                pass
        return rows.queue(self._run(list(self._all_jobs)), " ".join(self._all_jobs))

    def _ask_one(self, job_id: int) -> list[QueuedJob]:
        argv = [*self._one_job, str(job_id)]
        # An array's id brings all its tasks.
        jobs = rows.queue(self._run(argv), " ".join(argv))
        return [job for job in jobs if job.job_id == job_id]


def _now(job: QueuedJob, now: tuple[str, ...]) -> QueuedJob:
    """The job with the table's state, reason, priority and times."""
    state, reason = rows.queue_state((now[0],)), now[1]
    priority, start, eligible = (int(text) if text.isdecimal() else 0 for text in now[2:])
    before = (job.state, job.reason, job.priority, job.start, job.eligible)
    if before == (state, reason, priority, start, eligible):
        return job
    return replace(
        job, state=state, reason=reason, priority=priority, start=start, eligible=eligible
    )
