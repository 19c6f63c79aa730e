"""Every node's state (topology, free GPUs, neighbours), kept up to date between questions.

Nodes in the same state are ranked once: a question costs as much as changed since the last one. A
state does not tell apart what is worth the same to any job: GPUs that can take each other's place,
neighbours that are on the same sockets, and on large nodes whole sockets that are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import compress, count
from operator import is_not
from typing import NamedTuple

from gres_topology import NodeTopology
from policies.contract.bits import moved
from policies.contract.interference import Interference, Kind, kind_of_running
from policies.contract.nodes import FreeOn, NodeTable
from policies.contract.nouns import RunningJob
from policies.contract.ranking import StateIndex
from policies.contract.running import RunningJobs
from policies.topo_aware.machine import MachineGraph
from policies.topo_aware.utility import Beside, Crowd

#: Jobs that came or went between two snapshots before all are compared at once.
_FEW = 64
#: Changes that are ranked in one go between questions.
STATES_AHEAD = 4
#: Different crowds kept, some 1 KB each; states without one.
_MOST_CROWDS = 50_000
_NOBODY = Crowd()
_Jobs = Collection[RunningJob]


class State(NamedTuple):
    """By what nodes differ; `kind` is a number of `NodeTable.kinds`.

    `free` is the least mask that is like the node's (`Runs.least`), neighbours are in their seats.
    """

    kind: int
    free: int
    beside: Crowd


class Index:
    """The states of a table's nodes; `update` brings them to its present and to these jobs."""

    def __init__(
        self,
        table: NodeTable,
        jobs: _Jobs,
        interference: Interference,
        machine: Callable[[NodeTopology], MachineGraph],
    ) -> None:
        self._interference = interference
        self._machines = [machine(kind.topology) for kind in table.kinds]
        self._jobs: _Jobs = ()
        self._crowds: dict[Crowd, Crowd] = {}
        #: Of nodes without neighbours.
        self._alone: dict[FreeOn, State] = {}
        self._beside: dict[int, dict[int, Beside]] = {}
        self._update_jobs(table, jobs)
        self._moment = table.index.moment
        self.states = StateIndex(self._state(table, place) for place in range(len(table.names)))

    def update(self, table: NodeTable, jobs: _Jobs) -> None:
        """Bring the states of the nodes up to date with the table and the running jobs."""
        changed = self._update_jobs(table, jobs)
        changes = table.index.changes_since(self._moment)
        self._moment = table.index.moment
        if changes is None:
            changed.update(range(len(table.names)))
        else:
            changed.update(place for place, _, _ in changes)
        for place in changed:
            self.states.move(place, self._state(table, place))

    def catch_up(self, table: NodeTable) -> bool:
        """Take over what changed beside the jobs, then rank a few of the new states.

        Each costs a bipartition, so few at once: a question waits for them.
        """
        self.update(table, self._jobs)
        return self.states.catch_up(STATES_AHEAD)

    def _update_jobs(self, table: NodeTable, jobs: _Jobs) -> set[int]:
        """Take over who runs; the places of the nodes on which a job came or went."""
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
        free_on = table.index[place]
        kind, free = free_on
        machine = self._machines[kind]
        near = self._beside.get(place)
        if not near:
            state = self._alone.get(free_on)
            if state is None:
                if len(self._alone) > _MOST_CROWDS:
                    self._alone.clear()
                state = State(kind, machine.runs.least(free), _NOBODY)
                self._alone[free_on] = state
            return state
        seats = Seats(machine, free, [job for job in near.values() if job.mask & ~free])
        busy = [job._replace(mask=seats.of(job.mask & ~free)) for job in seats.jobs]
        # One object for all that are equal: then they are compared in one step.
        crowd = Crowd(sorted(busy))
        if len(self._crowds) > _MOST_CROWDS:
            self._crowds.clear()
        return State(kind, seats.least, self._crowds.setdefault(crowd, crowd))

    def seats(self, table: NodeTable, place: int) -> Seats:
        """Where a node's state has its GPUs."""
        kind, free = table.index[place]
        machine = self._machines[kind]
        near = self._beside.get(place, {}) if machine.alike else {}
        return Seats(machine, free, [job for job in near.values() if job.mask & ~free])


class Seats:
    """Where a state has what is on a node: of sockets alike those first that have most free.

    Among these they go by who is on them, so that nodes that differ by their order are one state.
    """

    def __init__(self, machine: MachineGraph, free: int, jobs: list[Beside]) -> None:
        self.machine, self.free, self.jobs = machine, free, jobs
        self.least = machine.runs.least(free)
        #: By a socket's place in the state the one of the node, where these may differ.
        self._from: dict[int, int] = {}
        for group in machine.alike:
            ranked = sorted(group, key=self._rank)
            self._from.update(zip(group, ranked, strict=True))

    def _rank(self, socket: int) -> tuple[int, list[tuple[Kind, float]]]:
        gpus = self.machine.sockets[socket]
        here = [(job.kind, job.memory_gbps) for job in self.jobs if job.mask & ~self.free & gpus]
        return -(self.free & gpus).bit_count(), sorted(here)

    def of(self, mask: int) -> int:
        """The seats of a job with these GPUs of the node."""
        machine, moved_from = self.machine, self._from
        if not moved_from:
            return machine.seats(mask)
        touched = machine.touched(mask)
        return sum(
            socket & -socket
            for at, socket in enumerate(machine.sockets)
            if touched >> moved_from.get(at, at) & 1
        )

    def on_node(self, mask: int) -> int:
        """The node's GPUs for a set of the state's free ones."""
        return sum(
            moved(mask & seat, self.least & seat, self.free & own) for seat, own in self._parts()
        )

    def in_state(self, mask: int) -> int:
        """The state's GPUs for a set of the node's free ones."""
        return sum(
            moved(mask & own, self.free & own, self.least & seat) for seat, own in self._parts()
        )

    def _parts(self) -> Iterator[tuple[int, int]]:
        """GPUs of the state and those of the node that they are, as many."""
        sockets, rest = self.machine.sockets, -1
        for to, at in self._from.items():
            rest &= ~sockets[to]
            yield sockets[to], sockets[at]
        yield rest, rest


def _difference(old: _Jobs, new: _Jobs) -> tuple[list[RunningJob], list[RunningJob]]:
    """(gone, came). Jobs are immutable: the same object is the same job, unchanged."""
    if old is new:
        return [], []
    if isinstance(old, RunningJobs) and isinstance(new, RunningJobs):
        return new.since(old)
    if isinstance(old, tuple) and isinstance(new, tuple):
        return _of_tuples(old, new)
    return _of_any(old, new)


def _of_any(old: _Jobs, new: _Jobs) -> tuple[list[RunningJob], list[RunningJob]]:
    before, after = {id(job) for job in old}, {id(job) for job in new}
    return (
        [job for job in old if id(job) not in after],
        [job for job in new if id(job) not in before],
    )


def _of_tuples(
    old: tuple[RunningJob, ...], new: tuple[RunningJob, ...]
) -> tuple[list[RunningJob], list[RunningJob]]:
    """Two snapshots mostly hold the same jobs in the same order, some ended, some at the end new.

    Then only the places where they part are looked at.
    """
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
    return _of_any(old, new)
