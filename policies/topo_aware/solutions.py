"""What `Bipartition` finds for each state of a node and kind of job, each computed once."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from gres_topology import NodeTopology
from policies.contract.interference import Interference, kind_of_request, weight_of
from policies.contract.nodes import NodeTable
from policies.contract.nouns import Request, RunningJob
from policies.topo_aware.drb import Bipartition
from policies.topo_aware.index import Index, State
from policies.topo_aware.machine import MachineGraph
from policies.topo_aware.settings import TopoAwareSettings
from policies.topo_aware.utility import Crowd, JobNeeds, SetScorer, UtilityTerms

#: (mask of GPUs, terms).
Solution = tuple[int, UtilityTerms]
#: Solutions kept, some 60 MB; when there are more, all are forgotten.
MOST_SOLUTIONS = 200_000


class Solutions:
    """Shared by `topo-aware` and `topo-aware-p`; safe to ask from several threads."""

    def __init__(self, settings: TopoAwareSettings, interference: Interference) -> None:
        self.settings, self.interference = settings, interference
        self._machines: dict[str, MachineGraph] = {}
        self._solved: dict[tuple[str, int, Crowd, JobNeeds], Solution] = {}
        self._indices: WeakKeyDictionary[NodeTable, Index] = WeakKeyDictionary()

    def needs(self, request: Request, count: int) -> JobNeeds:
        """What matters of a request on a node of which it gets `count` GPUs."""
        kind = kind_of_request(request)
        weight = weight_of(kind.batch) if request.sensitive else 0
        return JobNeeds(count, self.interference.told_apart(kind), weight)

    def machine(self, topology: NodeTopology) -> MachineGraph:
        """What is known of this shape of node."""
        machine = self._machines.get(topology.shape)
        if machine is None:
            machine = self._machines[topology.shape] = MachineGraph(topology)
        return machine

    @contextmanager
    def index(self, table: NodeTable, jobs: Collection[RunningJob]) -> Iterator[Index]:
        """The index of a table, up to date, and nobody else's until the end of the block."""
        index = self._indices.pop(table, None)
        if index is None:
            index = Index(table, jobs, self.interference, self.machine)
            table.followers.add(index)
        else:
            index.update(table, jobs)
        yield index
        self._indices[table] = index

    def of(self, topology: NodeTopology, state: State, asked: JobNeeds) -> Solution:
        """The solution on a node of this shape and state that has room."""
        key = (topology.shape, state.free, state.beside, asked)
        solution = self._solved.get(key)
        if solution is None:
            if len(self._solved) > MOST_SOLUTIONS:
                self._solved.clear()
            solution = self._solved[key] = self.solve(topology, state, asked)
        return solution

    def solve(self, topology: NodeTopology, state: State, asked: JobNeeds) -> Solution:
        """Bipartition on such a node, from the start."""
        return Bipartition(self.scale(topology, state, asked)).solve()

    def scale(self, topology: NodeTopology, state: State, asked: JobNeeds) -> SetScorer:
        """By what sets on such a node are judged."""
        machine = self.machine(topology)
        return SetScorer(machine, state.free, state.beside, asked, self.settings, self.interference)
