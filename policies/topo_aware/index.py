"""Every node's state (topology, free GPUs, neighbours), kept up to date between questions.

Nodes in the same state are ranked once: a question costs as much as changed since the last one.
"""

from __future__ import annotations

from itertools import compress, count
from operator import is_not
from typing import NamedTuple

from policies.contract.interference import Interference, kind_of_running
from policies.contract.nodes import NodeTable
from policies.contract.nouns import RunningJob
from policies.contract.ranking import StateIndex
from policies.topo_aware.utility import Beside

#: Jobs that came or went between two snapshots before all are compared at once.
_FEW = 64
_Jobs = tuple[RunningJob, ...]


class State(NamedTuple):
    """By what nodes differ; `kind` is a number of `NodeTable.kinds`."""

    kind: int
    free: int
    beside: tuple[Beside, ...]


class Index:
    """The states of a table's nodes; `update` brings them to its present and to these jobs."""

    def __init__(self, table: NodeTable, jobs: _Jobs, interference: Interference) -> None:
        self._interference = interference
        self._jobs: _Jobs = ()
        self._beside: dict[int, dict[int, Beside]] = {}
        self._update_jobs(table, jobs)
        self._moment = table.index.moment
        self.states = StateIndex(self._state(table, place) for place in range(len(table.names)))

    def update(self, table: NodeTable, jobs: _Jobs) -> None:
        """Take over what changed."""
        changed = self._update_jobs(table, jobs)
        changes = table.index.changes_since(self._moment)
        self._moment = table.index.moment
        if changes is None:
            changed.update(range(len(table.names)))
        else:
            changed.update(place for place, _, _ in changes)
        for place in changed:
            self.states.move(place, self._state(table, place))

    def _update_jobs(self, table: NodeTable, jobs: _Jobs) -> set[int]:
        """Nodes whose neighbours changed."""
        changed: set[int] = set()
        gone, came = _difference(self._jobs, jobs)
        for job in gone:
            for name in job.gpus:
                place = table.place.get(name)
                if place is not None:
                    self._beside[place].pop(job.job_id, None)
                    changed.add(place)
        for job in came:
            kind = None
            for name, mask in job.gpus.items():
                place = table.place.get(name)
                if place is None:
                    continue
                kind = kind or self._interference.told_apart(kind_of_running(job))
                beside = Beside(mask, kind, job.memory_gbps)
                self._beside.setdefault(place, {})[job.job_id] = beside
                changed.add(place)
        self._jobs = jobs
        return changed

    def _state(self, table: NodeTable, place: int) -> State:
        """A GPU that is free has no job on it, whatever a cache of Slurm's jobs still says."""
        kind, free = table.index[place]
        busy = [
            job if not job.mask & free else job._replace(mask=job.mask & ~free)
            for job in self._beside.get(place, {}).values()
            if job.mask & ~free
        ]
        return State(kind, free, tuple(sorted(busy)))


def _difference(old: _Jobs, new: _Jobs) -> tuple[list[RunningJob], list[RunningJob]]:
    """(gone, came). Jobs are immutable: the same object is the same job, unchanged.

    Two snapshots mostly hold the same jobs in the same order, some ended, some at the end
    new; then only the places where they part are looked at.
    """
    if old is new:
        return [], []
    gone: list[RunningJob] = []
    here = there = 0
    while len(gone) < _FEW:
        differ = map(is_not, old[here:], new[there:])
        same = next(compress(count(), differ), None)
        if same is None:
            rest = min(len(old) - here, len(new) - there)
            return gone + list(old[here + rest :]), list(new[there + rest :])
        gone.append(old[here + same])
        here, there = here + same + 1, there + same
    before, after = {id(job) for job in old}, {id(job) for job in new}
    return (
        [job for job in old if id(job) not in after],
        [job for job in new if id(job) not in before],
    )
