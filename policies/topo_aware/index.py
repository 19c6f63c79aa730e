"""Every node's state (topology, free GPUs, neighbours), kept up to date between questions.

Nodes no policy can tell apart are one group, so a question costs as much as there are
different states. A new snapshot is compared with the last one; only what changed is moved.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from policies.interference import Interference, kind_of_running
from policies.nouns import Cluster, NodeState, RunningJob
from policies.topo_aware.utility import Beside, Terms


class State(NamedTuple):
    """What a node is told apart by; the shape stands for the topology."""

    shape: str
    free: int
    beside: tuple[Beside, ...]


class Group:
    """Nodes in one state and of one Slurm weight; `node` is one of them."""

    __slots__ = ("_heap", "members", "node", "room", "solved", "state", "weight")

    def __init__(self, state: State, node: NodeState) -> None:
        self.state, self.node, self.weight = state, node, node.weight
        self.room = node.free.bit_count()
        #: Solutions by number of question, the solver's to fill.
        self.solved: dict[int, tuple[int, Terms]] | None = None
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
        self._keys: dict[str, tuple[State, int]] = {}
        self._groups: dict[tuple[State, int], Group] = {}
        self._jobs: tuple[RunningJob, ...] = ()
        self._job_ids: set[int] = set()
        self._beside: dict[str, dict[int, Beside]] = {}

    def groups(self) -> Iterator[Group]:
        """All groups, in no order that matters."""
        return iter(self._groups.values())

    def update(self, cluster: Cluster) -> None:
        """Take over a snapshot."""
        changed = self._update_jobs(cluster.jobs)
        known, nodes = self._nodes, cluster.nodes
        for name, state in nodes.items():
            old = known.get(name)
            if old is not state and (
                old is None
                or old.free != state.free
                or old.weight != state.weight
                or old.topology is not state.topology
            ):
                changed.add(name)
            if old is not state:
                known[name] = state
        if len(known) != len(nodes):
            for name in known.keys() - nodes.keys():
                del known[name]
                self._leave(name)
        for name in changed:
            if name in known:
                self._leave(name)
                self._enter(known[name])

    def _update_jobs(self, jobs: tuple[RunningJob, ...]) -> set[str]:
        """Nodes whose neighbours changed. Jobs are immutable, so the same object is the same."""
        changed: set[str] = set()
        if jobs is self._jobs:
            return changed
        ids = set(map(id, jobs))
        gone, came = self._job_ids - ids, ids - self._job_ids
        if gone:
            for job in self._jobs:
                if id(job) in gone:
                    for name in job.gpus:
                        self._beside.get(name, {}).pop(job.job_id, None)
                        changed.add(name)
        if came:
            for job in jobs:
                if id(job) in came:
                    kind = self._interference.told_apart(kind_of_running(job))
                    for name, mask in job.gpus.items():
                        beside = Beside(mask, kind, job.memory_gbps)
                        self._beside.setdefault(name, {})[job.job_id] = beside
                        changed.add(name)
        # The old tuple is kept until here, so no id can have been given to a new job.
        self._jobs, self._job_ids = jobs, ids
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
            group = self._groups[key] = Group(key[0], node)
        group.add(node.name)
        self._keys[node.name] = key
