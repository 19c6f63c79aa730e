"""The jobs that run, as a collection that is never changed: the next one shares most with it.

Jobs come and go one by one while tens of thousands run. To make the next collection, and to tell
two apart, costs as much as changed and a small part of the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from policies.contract.nouns import RunningJob

#: Parts of a collection: one is copied to change a job of it.
PARTS = 512
#: Changes that are remembered in their order, so that nobody has to look for them.
REMEMBERED = 4096

_Part = Mapping[int, RunningJob]


class RunningJobs(Collection[RunningJob]):
    """Jobs by their id."""

    __slots__ = ("_count", "_journal", "_moment", "_parts")

    def __init__(self, jobs: Iterable[RunningJob] = ()) -> None:
        parts: list[dict[int, RunningJob]] = [{} for _ in range(PARTS)]
        for job in jobs:
            parts[job.job_id % PARTS][job.job_id] = job
        self._parts: list[_Part] = list(parts)
        self._count = sum(map(len, parts))
        #: Ids that changed, shared with those made of this one; as of here `_moment` of them.
        self._journal: list[int] = []
        self._moment = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[RunningJob]:
        return chain.from_iterable(part.values() for part in self._parts)

    def __contains__(self, job: object) -> bool:
        return isinstance(job, RunningJob) and self.get(job.job_id) == job

    def get(self, job_id: int) -> RunningJob | None:
        """The job of this id; None where it does not run."""
        return self._parts[job_id % PARTS].get(job_id)

    def changed(self, gone: Iterable[int], came: Iterable[RunningJob]) -> RunningJobs:
        """Without some (by id), then with others; one that has an id already takes its place."""
        fresh: dict[int, dict[int, RunningJob]] = {}
        parts, touched = self._parts, []
        for job_id in gone:
            at = job_id % PARTS
            if at not in fresh:
                fresh[at] = dict(parts[at])
            fresh[at].pop(job_id, None)
            touched.append(job_id)
        for job in came:
            at = job.job_id % PARTS
            if at not in fresh:
                fresh[at] = dict(parts[at])
            fresh[at][job.job_id] = job
            touched.append(job.job_id)
        made = RunningJobs.__new__(RunningJobs)
        made._parts = [fresh.get(at, part) for at, part in enumerate(parts)] if fresh else parts
        made._count = self._count + sum(len(new) - len(parts[at]) for at, new in fresh.items())
        made._journal = self._journal
        if len(made._journal) != self._moment or self._moment + len(touched) > REMEMBERED:
            # There is another next one already, or too much is remembered.
            made._journal, touched = [], []
        made._journal += touched
        made._moment = len(made._journal)
        return made

    def since(self, old: RunningJobs) -> tuple[list[RunningJob], list[RunningJob]]:
        """(gone, came) after `old`. The same object is the same job, unchanged."""
        gone: list[RunningJob] = []
        came: list[RunningJob] = []
        for job_id in self._touched_since(old):
            before, now = old.get(job_id), self.get(job_id)
            if before is not now:
                gone += [before] if before else []
                came += [now] if now else []
        return gone, came

    def _touched_since(self, old: RunningJobs) -> set[int]:
        """The ids that may have changed."""
        if old._journal is self._journal and old._moment <= self._moment:
            return set(self._journal[old._moment : self._moment])
        touched: set[int] = set()
        for before, now in zip(old._parts, self._parts, strict=True):
            if before is not now:
                touched |= before.keys() | now.keys()
        return touched
