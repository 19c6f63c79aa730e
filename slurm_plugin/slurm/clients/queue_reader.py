"""Reads the queue by Slurm's commands; only jobs that changed since the last time cost much.

No user's text can forge scontrol's JSON, but it costs a quarter of a second of CPU for a thousand
jobs; `squeue -O` costs a fiftieth. So squeue's table says which jobs are unchanged, and only the
others are read as JSON. State, reason, priority and the times are taken from the table. Of many
new jobs that wait and ask for the same (a loop of sbatch) one is read as JSON: the others are the
same with an id, a name, a command, a submit time and an AdminComment of their own, which the table
has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from slurm_plugin.base.job_states import queue_state
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.clients import rows, squeue_table
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.slurm.runner import Runner

_TABLE = ("State", "Reason", "PriorityLong", "StartTime", "EligibleTime")
# A job is read anew where the text of one of these columns changed: all else that can change.
_WATCHED = (
    "ArrayTaskId", "HetJobOffset", "UserID", "Account", "QOS", "Licenses", "Partition", "EndTime",
    "TimeLimit", "Dependency", "NodeList", "NumNodes", "MaxNodes", "NumTasks", "NumCPUs",
    "cpus-per-task", "cpus-per-tres", "MinCPUs", "MinMemory", "mem-per-tres", "tres-per-node",
    "tres-per-job", "tres-per-task", "tres-per-socket", "Feature", "ReqNodes", "ExcNodes",
    "Reservation", "OverSubscribe", "Comment", "tres-alloc",
)  # fmt: skip
# The same, of each job its own.
_OWN = ("Name", "Command", "SubmitTime", "admin_comment")
_COLUMNS = ("JobId", *_TABLE, *_WATCHED, *_OWN)
_STATE, _END = _COLUMNS.index("State"), _COLUMNS.index("EndTime")
#: More changed jobs than this, and than one of so many, are cheaper to read all at once.
FEW, FEW_OF = 12, 40


class _Row(NamedTuple):
    """A row of the table: what is taken from it, and what tells a change."""

    job_id: int
    now: tuple[str, ...]
    watched: tuple[str, ...]

    @property
    def task(self) -> str:
        """The number of an array's task; '' for any other job."""
        return self.watched[0]


class _Seen(NamedTuple):
    """One job in the table; array tasks that wait together are its further `tasks`."""

    now: tuple[str, ...]
    watched: tuple[str, ...]
    tasks: tuple[str, ...]

    @property
    def kind(self) -> tuple[str, ...]:
        """Equal for jobs that differ in nothing but what is their own; () for one by itself."""
        task, offset, *_ = self.watched
        return () if task or offset or self.now[0] != "PENDING" else self.watched[: -len(_OWN)]

    def is_same(self, other: _Seen) -> bool:
        """Did nothing change that has to be read anew?"""
        return self is other or (self.watched, self.tasks) == (other.watched, other.tasks)


class _Known(NamedTuple):
    """A job, and the table's rows of the moment before it was read."""

    seen: _Seen
    job: QueuedJob
    #: The job that was read in its place, until the next table shows that as it was; 0 for none.
    read_as: int = 0


class QueueReader:
    """Reads the queue again and again; one per client, used from one thread."""

    def __init__(self, run: Runner, all_jobs: tuple[str, ...], one_job: tuple[str, ...]) -> None:
        self._run = run
        self._all_jobs = all_jobs
        self._one_job = one_job
        self._known: dict[int, _Known] = {}
        # The last table's rows by their text: most are the same again.
        self._rows: dict[str, _Row] = {}
        # A job of each kind.
        self._kinds: dict[tuple[str, ...], int] = {}

    def read(self) -> list[QueuedJob]:
        """Every job that waits or holds resources, by id."""
        table = self._table()
        known, stale = {}, []
        for job_id, seen in table.items():
            was = self._known.get(job_id)
            if was is None or not self._is_right(was, seen, table):
                stale.append(job_id)
            elif was.seen is seen and not was.read_as:
                known[job_id] = was
            else:
                known[job_id] = _Known(seen, _now(was.job, seen.now))
        self._known = known
        if stale:
            self._read_anew(stale, table)
        jobs = (one.job for one in self._known.values() if one.job.state)
        return sorted(jobs, key=lambda job: job.job_id)

    def _table(self) -> dict[int, _Seen]:
        """The jobs in the table."""
        rows: dict[str, _Row] = {}
        by_id: dict[int, list[_Row]] = {}
        for line in squeue_table.lines(self._run, _COLUMNS):
            rows[line] = row = self._rows.get(line) or _row(line)
            by_id.setdefault(row.job_id, []).append(row)
        self._rows = rows
        return {job_id: self._seen(job_id, *of_job) for job_id, of_job in by_id.items()}

    def _seen(self, job_id: int, row: _Row, *others: _Row) -> _Seen:
        """A job by its rows; the very one of the last table where they are the same."""
        tasks = tuple(other.task for other in others)
        was = self._known.get(job_id)
        if was is not None and was.seen.watched is row.watched and was.seen.tasks == tasks:
            return was.seen
        return _Seen(row.now, row.watched, tasks)

    def _is_right(self, was: _Known, seen: _Seen, table: dict[int, _Seen]) -> bool:
        """Is what is known of a job, of which the table now says `seen`, right still?"""
        if not was.seen.is_same(seen):
            return False
        # The one that was read in its place may have been changed a moment before that.
        return not was.read_as or self._is_unchanged(was.read_as, table)

    def _is_unchanged(self, job_id: int, table: dict[int, _Seen]) -> bool:
        was, seen = self._known.get(job_id), table.get(job_id)
        return was is not None and seen is not None and was.seen.is_same(seen)

    def _read_anew(self, stale: list[int], table: dict[int, _Seen]) -> None:
        """Get to know these jobs; those that are gone by now are left out."""
        read: set[int] = set()
        while stale:
            alone, alike = self._choose(stale, table)
            read.update(alone)
            fresh = {job.job_id: job for job in self._ask(alone, len(table))}
            for job_id in fresh.keys() & stale:
                # The table may be older than this: then it is read anew next time.
                self._known[job_id] = _Known(table[job_id], fresh[job_id])
            stale = []
            for job_id, one in alike.items():
                known = self._known.get(one)
                if job_id in fresh:
                    continue
                if known is not None and known.job.state == "PENDING":
                    job = _like(known.job, job_id, table[job_id])
                    self._known[job_id] = _Known(table[job_id], job, one if one in read else 0)
                else:
                    stale.append(job_id)
        if len(self._kinds) > FEW + 2 * len(self._known):
            self._kinds = {k: one for k, one in self._kinds.items() if one in self._known}

    def _choose(
        self, stale: list[int], table: dict[int, _Seen]
    ) -> tuple[list[int], dict[int, int]]:
        """Which of these jobs are to be asked about; the others, and for each one of its kind."""
        alone: list[int] = []
        alike: dict[int, int] = {}
        chosen: set[tuple[str, ...]] = set()
        for job_id in stale:
            kind = table[job_id].kind
            one = self._kinds.get(kind, 0) if kind else 0
            if kind in chosen or self._is_example(one, kind):
                alike[job_id] = one
                continue
            if kind:
                self._kinds[kind] = job_id
                chosen.add(kind)
            alone.append(job_id)
        return alone, alike

    def _is_example(self, job_id: int, kind: tuple[str, ...]) -> bool:
        """Is this job known, waiting, and of this kind?"""
        known = self._known.get(job_id)
        return (
            known is not None
            and not known.read_as
            and known.job.state == "PENDING"
            and known.seen.kind == kind
        )

    def _ask(self, stale: list[int], count: int) -> list[QueuedJob]:
        """These of `count` jobs as JSON tells them (and perhaps others)."""
        if not stale:
            return []
        if len(stale) <= max(FEW, count // FEW_OF):
            try:
                return [job for job_id in stale for job in self._ask_one(job_id)]
            except SlurmError:
                # The long list tells all that there is.
                pass
        return rows.queue(self._run(list(self._all_jobs)), " ".join(self._all_jobs))

    def _ask_one(self, job_id: int) -> list[QueuedJob]:
        argv = [*self._one_job, str(job_id)]
        try:
            jobs = rows.queue(self._run(argv), " ".join(argv))
        except SlurmError:
            # An empty reply: the job is over and forgotten, or slurmctld is down.
            if any(int(line) == job_id for line in squeue_table.lines(self._run, ("JobId",))):
                raise
            return []
        # An array's id brings all its tasks.
        return [job for job in jobs if job.job_id == job_id]


def _row(line: str) -> _Row:
    row = squeue_table.fields(line, _COLUMNS)
    if row[_STATE] == "PENDING":
        # An estimate, which changes for all jobs whose gates are renewed.
        row[_END] = ""
    first = 1 + len(_TABLE)
    return _Row(int(row[0]), tuple(row[1:first]), tuple(row[first:]))


def _like(other: QueuedJob, job_id: int, seen: _Seen) -> QueuedJob:
    """The job that asks for the same as the other one."""
    job_name, command, submit, comment = seen.watched[-len(_OWN) :]
    job = replace(
        other,
        job_id=job_id,
        name=str(job_id),
        job_name=job_name,
        command=command,
        submit=int(submit) if submit.isdecimal() else 0,
        admin_comment=comment,
        # squeue has no column for it.
        tasks_per_gpu=-1,
    )
    return _now(job, seen.now)


def _now(job: QueuedJob, now: tuple[str, ...]) -> QueuedJob:
    """The job with the table's state, reason, priority and times."""
    state, reason = queue_state((now[0],)), now[1]
    priority, start, eligible = (int(text) if text.isdecimal() else 0 for text in now[2:])
    before = (job.state, job.reason, job.priority, job.start, job.eligible)
    if before == (state, reason, priority, start, eligible):
        return job
    return replace(
        job, state=state, reason=reason, priority=priority, start=start, eligible=eligible
    )
