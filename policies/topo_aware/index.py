"""Every node's state (topology, free GPUs, neighbours), kept up to date between questions.

Nodes in the same state are one group: a question costs as much as there are different states. A
new snapshot is compared with the last one, and only what changed is moved.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import compress, count
from operator import is_not
from typing import NamedTuple

from policies.contract.interference import Interference, kind_of_running
from policies.contract.nouns import Cluster, NodeState, RunningJob
from policies.topo_aware.utility import Beside, UtilityTerms

#: Jobs that came or went between two snapshots before all are compared at once.
_FEW = 64
_Jobs = tuple[RunningJob, ...]


class State(NamedTuple):
    """By what nodes differ; the shape stands for the topology."""

    shape: str
    free: int
    beside: tuple[Beside, ...]


class StateGroup:
    """Nodes in one state and of one Slurm weight; `node` is one of them."""

    __slots__ = ("_heap", "free_gpus", "members", "node", "solved", "state", "weight")

    def __init__(self, state: State, node: NodeState) -> None:
        self.state, self.node, self.weight = state, node, node.weight
        self.free_gpus = node.free.bit_count()
        #: Solutions by number of question, the solver's to fill.
        self.solved: dict[int, tuple[int, UtilityTerms]] | None = None
        self.members: set[str] = set()
        self._heap: list[str] = []

    def add(self, name: str) -> None:
        """A node came into this state."""
        self.members.add(name)
        heapq.heappush(self._heap, name)
        if len(self._heap) > 2 * len(self.members) + 16:
            self._heap = sorted(self.members)

    def first(self, count: int) -> list[str]:
        """The first names, ascending, `count` at most."""
        heap, members = self._heap, self.members
        while heap[0] not in members:
            heapq.heappop(heap)
        if count == 1:
            return [heap[0]]
        return heapq.nsmallest(count, members)


class Index:
    """Groups of a snapshot; `update` brings them to the next one."""

    def __init__(self, interference: Interference) -> None:
        self._interference = interference
        self._nodes: dict[str, NodeState] = {}
        self._names: list[str] = []
        self._keys: dict[str, tuple[State, int]] = {}
        self._groups: dict[tuple[State, int], StateGroup] = {}
        self._jobs: tuple[RunningJob, ...] = ()
        self._beside: dict[str, dict[int, Beside]] = {}

    def size(self) -> int:
        """How many nodes the last snapshot had."""
        return len(self._nodes)

    def groups(self) -> Iterator[StateGroup]:
        """All groups, in no order that matters."""
        return iter(self._groups.values())

    def group_of(self, name: str) -> StateGroup:
        """The group of a node of the last snapshot."""
        return self._groups[self._keys[name]]

    def update(self, cluster: Cluster) -> None:
        """Take over a snapshot."""
        changed = self._update_jobs(cluster.jobs)
        nodes, known = cluster.nodes, self._nodes
        if list(nodes) == self._names:
            # At the speed of C: of 25,000 nodes one or two changed.
            differs = map(is_not, nodes.values(), known.values())
            new = list(compress(nodes.items(), differs))
        else:
            for name in known.keys() - nodes.keys():
                self._leave(name)
            new = [(name, node) for name, node in nodes.items() if known.get(name) is not node]
            self._nodes = known = {name: known.get(name, node) for name, node in nodes.items()}
            self._names = list(nodes)
        for name, node in new:
            old = known[name]
            if name not in self._keys or not _is_same(old, node):
                changed.add(name)
            known[name] = node
        for name in changed:
            if name in known:
                self._leave(name)
                self._enter(known[name])

    def _update_jobs(self, jobs: tuple[RunningJob, ...]) -> set[str]:
        """Nodes whose neighbours changed."""
        changed: set[str] = set()
        gone, came = _difference(self._jobs, jobs)
        for job in gone:
            for name in job.gpus:
                self._beside[name].pop(job.job_id, None)
                changed.add(name)
        for job in came:
            kind = self._interference.told_apart(kind_of_running(job))
            for name, mask in job.gpus.items():
                beside = Beside(mask, kind, job.memory_gbps)
                self._beside.setdefault(name, {})[job.job_id] = beside
                changed.add(name)
        self._jobs = jobs
        return changed

    def _state(self, node: NodeState) -> State:
        """A GPU that is free has no job on it, whatever a cache of Slurm's jobs still says."""
        busy = [
            job if not job.mask & node.free else job._replace(mask=job.mask & ~node.free)
            for job in self._beside.get(node.name, {}).values()
            if job.mask & ~node.free
        ]
        return State(node.topology.shape, node.free, tuple(sorted(busy)))

    def _leave(self, name: str) -> None:
        key = self._keys.pop(name, None)
        if key is not None:
            group = self._groups[key]
            group.members.discard(name)
            if not group.members:
                del self._groups[key]

    def _enter(self, node: NodeState) -> None:
        key = (self._state(node), node.weight)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = StateGroup(key[0], node)
        group.add(node.name)
        self._keys[node.name] = key


def _is_same(old: NodeState, new: NodeState) -> bool:
    """Whether nothing we look at has changed."""
    return old.free == new.free and old.weight == new.weight and old.topology is new.topology


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
