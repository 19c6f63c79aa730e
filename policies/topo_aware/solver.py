"""Solutions per distinct state of a node and kind of job, each computed once.

The fast path of the policy: what `Bipartition` would find on every node, looked up by group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gres_topology import NodeTopology
from policies.contract.interference import Interference
from policies.contract.nouns import Cluster
from policies.contract.settings import setting
from policies.topo_aware.drb import Bipartition
from policies.topo_aware.graph import Levels
from policies.topo_aware.index import Group, Index, State
from policies.topo_aware.machine import Machine
from policies.topo_aware.utility import Asked, Scale, Terms, Weights

#: (mask of GPUs, terms).
Solution = tuple[int, Terms]
#: Solutions kept, some 60 MB; then all but those of the present snapshot are forgotten.
MOST_SOLUTIONS = 200_000
#: A snapshot of so many times fewer nodes than the last does not take its place.
MUCH_SMALLER = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """What a site may set: weights of the utility's terms, and memory bandwidth."""

    communication: float = setting(1.0, "Weight of the term of distance.", high=1000)
    interference: float = setting(1.0, "Weight of the term of neighbours.", high=1000)
    fragmentation: float = setting(1.0, "Weight of the term of whole sockets.", high=1000)
    socket_memory_gbps: float = setting(
        0.0,
        "Host memory bandwidth of one socket, GB/s, for `memory-bandwidth`; 0: not checked.",
        high=100_000,
    )
    #: Weights of the graph's edges; not in gputopo.yaml.
    levels: Levels = field(default_factory=Levels)

    def conflict(self) -> tuple[str, str] | None:
        """Without any weight there is nothing to choose by."""
        if self.communication + self.interference + self.fragmentation:
            return None
        return "", "all three weights are 0; expected one above"

    @property
    def weights(self) -> Weights:
        """The weights of the three terms."""
        return Weights(self.communication, self.interference, self.fragmentation)


class Solver:
    """Shared by `topo-aware` and `topo-aware-p`; safe to ask from several threads."""

    def __init__(self, settings: Settings, interference: Interference) -> None:
        self.settings, self.interference = settings, interference
        self._weights = settings.weights
        self._machines: dict[str, Machine] = {}
        self._solved: dict[State, dict[int, Solution]] = {}
        self._count = 0
        self._numbers: dict[Asked, int] = {}
        self._idle: list[Index] = []

    def machine(self, topology: NodeTopology) -> Machine:
        """What is known of this shape of node."""
        found = self._machines.get(topology.shape)
        if found is None:
            found = self._machines[topology.shape] = Machine(topology, self.settings.levels)
        return found

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

    def number(self, asked: Asked) -> int:
        """A small number for a kind of question: quicker to look up than the kind."""
        return self._numbers.setdefault(asked, len(self._numbers))

    def solutions(self, groups: Iterable[Group], asked: Asked) -> list[tuple[Group, Solution]]:
        """The solution on every group that has room."""
        number = self.number(asked)
        found = []
        for group in groups:
            if group.room < asked.gpus:
                continue
            if group.solved is None:
                group.solved = self._of_state(group.state)
            solution = group.solved.get(number)
            if solution is None:
                solution = group.solved[number] = self.solve(group, asked)
                self._count += 1
            found.append((group, solution))
        return found

    def _of_state(self, state: State) -> dict[int, Solution]:
        if self._count > MOST_SOLUTIONS:
            self._solved.clear()
            self._count = 0
        return self._solved.setdefault(state, {})

    def solve(self, group: Group, asked: Asked) -> Solution:
        """Bipartition on one node of the group, from the start."""
        machine = self.machine(group.node.topology)
        state = group.state
        scale = Scale(machine, state.free, state.beside, asked, self._weights, self.interference)
        return Bipartition(scale).solve()
