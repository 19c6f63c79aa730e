"""What `Bipartition` finds for each state of a node and kind of job, each computed once."""

from __future__ import annotations

from collections.abc import Iterable

from gres_topology import NodeTopology
from policies.contract.interference import Interference
from policies.contract.nouns import Cluster
from policies.topo_aware.drb import Bipartition
from policies.topo_aware.index import Index, State, StateGroup
from policies.topo_aware.machine import MachineGraph
from policies.topo_aware.settings import TopoAwareSettings
from policies.topo_aware.utility import JobNeeds, Scale, UtilityTerms

#: (mask of GPUs, terms).
Solution = tuple[int, UtilityTerms]
#: Solutions kept, some 60 MB; then all but those of the present snapshot are forgotten.
MOST_SOLUTIONS = 200_000
#: A snapshot of so many times fewer nodes than the last does not take its place.
MUCH_SMALLER = 8


class Solutions:
    """Shared by `topo-aware` and `topo-aware-p`; safe to ask from several threads."""

    def __init__(self, settings: TopoAwareSettings, interference: Interference) -> None:
        self.settings, self.interference = settings, interference
        self._machines: dict[str, MachineGraph] = {}
        self._solved: dict[State, dict[int, Solution]] = {}
        self._count = 0
        self._numbers: dict[JobNeeds, int] = {}
        self._idle: list[Index] = []

    def machine(self, topology: NodeTopology) -> MachineGraph:
        """What is known of this shape of node."""
        machine = self._machines.get(topology.shape)
        if machine is None:
            machine = self._machines[topology.shape] = MachineGraph(topology)
        return machine

    def borrow(self, cluster: Cluster) -> Index:
        """The index of this snapshot, the caller's alone until it is given back.

        The last one brought up to date; a new one beside it for a question about a few of
        many nodes, such as the engine's about the nodes that Slurm chose.
        """
        try:
            index = self._idle.pop()
        except IndexError:
            index = Index(self.interference)
        if index.size() > MUCH_SMALLER * len(cluster.nodes):
            self.give_back(index)
            index = Index(self.interference)
            near = tuple(job for job in cluster.jobs if job.gpus.keys() & cluster.nodes.keys())
            cluster = Cluster(cluster.nodes, near)
        index.update(cluster)
        return index

    def give_back(self, index: Index) -> None:
        """Keep an index for the next question."""
        if not self._idle:
            self._idle.append(index)

    def number(self, asked: JobNeeds) -> int:
        """A small number for a kind of question: quicker to look up than the kind."""
        return self._numbers.setdefault(asked, len(self._numbers))

    def solutions(
        self, groups: Iterable[StateGroup], asked: JobNeeds
    ) -> list[tuple[StateGroup, Solution]]:
        """The solution on every group that has room."""
        number = self.number(asked)
        solved = []
        for group in groups:
            if group.free_gpus < asked.gpus:
                continue
            if group.solved is None:
                group.solved = self._of_state(group.state)
            solution = group.solved.get(number)
            if solution is None:
                solution = group.solved[number] = self.solve(group, asked)
                self._count += 1
            solved.append((group, solution))
        return solved

    def _of_state(self, state: State) -> dict[int, Solution]:
        if self._count > MOST_SOLUTIONS:
            self._solved.clear()
            self._count = 0
        return self._solved.setdefault(state, {})

    def solve(self, group: StateGroup, asked: JobNeeds) -> Solution:
        """Bipartition on one node of the group, from the start."""
        machine = self.machine(group.node.topology)
        state = group.state
        scale = Scale(machine, state.free, state.beside, asked, self.settings, self.interference)
        return Bipartition(scale).solve()
