"""Choosing the nodes: shared by every policy that ranks nodes by what it would do on each.

Slurm's node Weight comes first: a heavier node is never taken while a lighter one has room. Then,
for several nodes, as few switches between them as can be, as with Slurm's own topology plugins.
What a node delivers less than others of its kind (a power cap) is a part of policies' keys.
Nodes of equal (shape, free GPUs, weight) are ranked once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol
from weakref import WeakSet

from gres_topology import Network, NodeTopology
from policies.contract.bits import EXACT_GPUS, MOST_KNOWN, Runs
from policies.contract.blocks import Blocks
from policies.contract.nouns import NodeState
from policies.contract.ranking import Key, Ranking, StateIndex, each

#: Changes of a ranking that are taken over in one go between questions: a question waits for it.
CHANGES_AHEAD = 16

#: Smaller is better; compared after the weight and before the node's name.
RankKey = Callable[[NodeState, int], Key]

#: The same of many nodes that may have room, in their order; None for one that has none.
RankKeys = Callable[[list[NodeState], int], Sequence[Key | None]]

#: Networks that a table knows its places in: those of one topology.yaml.
MOST_NETWORKS = 16


class FreeOn(NamedTuple):
    """By what nodes differ: a number of `NodeTable.kinds`, and the mask of free GPUs."""

    kind: int
    free: int


class NodeKind(NamedTuple):
    """Nodes of one kind differ in their free GPUs alone."""

    topology: NodeTopology
    weight: int

    @property
    def heaviness(self) -> int:
        """Slurm's weight, then what the node delivers less than others of its kind, in tenths."""
        return 10 * self.weight + self.topology.lag_tenths


class Follower(Protocol):
    """What follows the changes of a table."""

    def catch_up(self, table: NodeTable) -> bool:
        """As `NodeTable.catch_up`; the follower holds no table."""
        ...


class NodeTable:
    """All nodes of a cluster by their state; the caller says what changes.

    Node i is `names[i]`; names ascend, so that the lowest place of a set is its first node.
    """

    def __init__(self, nodes: Iterable[NodeState]) -> None:
        states = sorted(nodes, key=lambda state: state.name)
        self.names = [state.name for state in states]
        self.place = {name: at for at, name in enumerate(self.names)}
        self.kinds: list[NodeKind] = []
        numbers: dict[tuple[object, ...], int] = {}
        kinds = []
        for state in states:
            topology = state.topology
            rails = (topology.rails, topology.sharp_rails)
            told_apart = (topology.shape, topology.nic_distance, *rails, state.weight)
            number = numbers.setdefault(told_apart, len(numbers))
            if number == len(self.kinds):
                self.kinds.append(NodeKind(topology, state.weight))
            kinds.append(number)
        self.index = StateIndex(
            FreeOn(kind, state.free) for kind, state in zip(kinds, states, strict=True)
        )
        self._alike: StateIndex[FreeOn] | None = None
        self._runs = [runs_of(kind.topology) for kind in self.kinds]
        #: What states are like, as far as that was asked.
        self._likes: dict[FreeOn, FreeOn] = {}
        #: The nodes of each kind.
        self.of_kind = [0] * len(self.kinds)
        for at, kind in enumerate(kinds):
            self.of_kind[kind] |= 1 << at
        #: Who ranks these nodes by more than that, as long as somebody else holds them.
        self.followers: WeakSet[Follower] = WeakSet()
        self._nodes: list[NodeState | None] = [None] * len(states)
        #: By the network's identity; the network itself is kept, so that it stays its own.
        self._domains: dict[int, tuple[Network, list[int], Blocks]] = {}

    def set_free(self, place: int, free: int) -> None:
        """A node has these GPUs free now (mask)."""
        state = FreeOn(self.index[place].kind, free)
        self.index.move(place, state)
        if self._alike is not None and self._alike is not self.index:
            self._alike.move(place, self._like(state))
        self._nodes[place] = None

    @property
    def alike(self) -> StateIndex[FreeOn]:
        """As `index`, but GPUs that can take each other's place are not told apart.

        Made when it is first asked for: a table of one question may never need it.
        """
        if self._alike is None:
            are_told_apart = not any(self._runs)
            like = map(self._like, self.index)
            self._alike = self.index if are_told_apart else StateIndex(like)
        return self._alike

    def _like(self, state: FreeOn) -> FreeOn:
        like = self._likes.get(state)
        if like is None:
            if len(self._likes) >= MOST_KNOWN:
                self._likes.clear()
            least = FreeOn(state.kind, self._runs[state.kind].least(state.free))
            like = self._likes[state] = least
        return like

    def node(self, place: int, own: int = 0) -> NodeState:
        """A node as policies see it; `own` are the GPUs that Slurm would take (mask)."""
        node = self._nodes[place]
        if node is None:
            kind, free = self.index[place]
            topology, weight = self.kinds[kind]
            node = self._nodes[place] = NodeState(self.names[place], topology, free, 0, weight)
        if not own:
            return node
        return NodeState(node.name, node.topology, node.free, own, node.weight)

    def ranking(self, kind: Hashable, count: int, ranked: RankKeys) -> Ranking[FreeOn]:
        """Nodes with `count` GPUs free, by weight and key; remembered under (kind, count).

        Of equal ones those first that have lost least of their links' bandwidth.
        """
        of_table = self.kinds

        def keys(states: list[FreeOn]) -> list[Key | None]:
            fit = [state for state in states if state.free.bit_count() >= count]
            kinds = [of_table[state.kind] for state in fit]
            nodes = [
                NodeState("", kind.topology, state.free, 0, kind.weight)
                for kind, state in zip(kinds, fit, strict=True)
            ]
            known = {
                state: (kind.weight, *key, kind.topology.lost)
                for state, kind, key in zip(fit, kinds, ranked(nodes, count), strict=True)
                if key is not None
            }
            return [known.get(state) for state in states]

        return self.alike.ranking(None if kind is None else (kind, count), keys)

    def catch_up(self) -> bool:
        """Rank some of what changed, ahead of the next question; False where nothing is left."""
        return self.alike.catch_up(CHANGES_AHEAD) or any(
            one.catch_up(self) for one in self.followers
        )

    def domains(self, network: Network) -> list[int]:
        """The nodes of each domain of the network, in its order."""
        return self._domains_of(network)[1]

    def blocks(self, network: Network) -> Blocks:
        """The domains of the network as sets of places, and which of them lie in which."""
        return self._domains_of(network)[2]

    def _domains_of(self, network: Network) -> tuple[Network, list[int], Blocks]:
        known = self._domains.get(id(network))
        if known is None:
            place = self.place
            sets = [
                sum(1 << place[name] for name in domain.nodes if name in place)
                for domain in network.domains
            ]
            levels = [domain.level for domain in network.domains]
            blocks = Blocks(zip(levels, sets, strict=True), len(self.names))
            if len(self._domains) == MOST_NETWORKS:
                self._domains.clear()
            known = self._domains[id(network)] = network, sets, blocks
        return known

    @property
    def whole(self) -> int:
        """The nodes of which every GPU is free."""
        return self._with(lambda gpus: (1 << gpus) - 1)

    @property
    def full(self) -> int:
        """The nodes of which no GPU is free."""
        return self._with(lambda gpus: 0)

    def _with(self, free: Callable[[int], int]) -> int:
        """The nodes that have just these GPUs free, by how many they have."""
        found = 0
        for number, kind in enumerate(self.kinds):
            found |= self.index.places(FreeOn(number, free(kind.topology.gpus)))
        return found


def runs_of(topology: NodeTopology) -> Runs:
    """Few sets of a small node are worth looking at each; of a large one boards alike are one."""
    return Runs(topology.runs, topology.boards if topology.gpus > EXACT_GPUS else ())


@dataclass(frozen=True, slots=True)
class Candidates(Mapping[str, NodeState]):
    """Some of a table's nodes, by name; `own` has Slurm's own GPUs (masks) where there are any."""

    table: NodeTable
    #: Their places in the table, as a set.
    among: int
    own: Mapping[str, int]

    def __getitem__(self, name: str) -> NodeState:
        place = self.table.place[name]
        if not self.among >> place & 1:
            raise KeyError(name)
        return self.table.node(place, self.own.get(name, 0))

    def __contains__(self, name: object) -> bool:
        place = self.table.place.get(name) if isinstance(name, str) else None
        return place is not None and bool(self.among >> place & 1)

    def __iter__(self) -> Iterator[str]:
        return (self.table.names[place] for place in each(self.among))

    def __len__(self) -> int:
        return self.among.bit_count()

    def topologies(self) -> Iterator[NodeTopology]:
        """Of each kind of node one."""
        for kind, places in zip(self.table.kinds, self.table.of_kind, strict=True):
            if places & self.among:
                yield kind.topology

    def only(self, *names: str) -> Candidates:
        """The candidates of these names alone."""
        places = sum(1 << self.table.place[name] for name in names)
        return replace(self, among=self.among & places)

    def without(self, names: Iterable[str]) -> Candidates:
        """The candidates but those of these names."""
        left = self.among
        for name in names:
            left &= ~(1 << self.table.place[name])
        return replace(self, among=left)


def candidates(nodes: Mapping[str, NodeState]) -> Candidates:
    """The nodes as `Candidates`: what `Cluster.nodes` is, or a table of their own."""
    if isinstance(nodes, Candidates):
        return nodes
    table = NodeTable(nodes.values())
    own = {name: node.own for name, node in nodes.items() if node.own}
    return Candidates(table, (1 << len(nodes)) - 1, own)
