"""Which moves would free what, and at what cost: a waiting job's place, a node, a block, a pair.

Exact for few jobs: every set of up to `most` jobs of a node is tried, and every way to place them
elsewhere in turn, cheapest first; of a node with many movable jobs only the cheapest are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from typing import NamedTuple

from gres_topology import Network, NodeTopology
from gres_topology.features import Unsupported
from policies.contract.bits import lowest_bits
from slurm_plugin.act.defrag.movable import Movable
from slurm_plugin.decide.machines import UNDECLARED, Machine, Machines
from slurm_plugin.queue.candidates import Need, fits, fullest
from slurm_plugin.queue.capacity import Hold, Node, Nodes, with_hold, without_holds
from slurm_plugin.slurm.interface import QueuedJob

#: Movable jobs of one node that are tried together, the cheapest.
MOST_OF_NODE = 12
#: Waiting jobs that a plan looks at, the first in Slurm's order.
MOST_WAITING = 20
#: Nodes with jobs in a block that a plan would empty.
MOST_IN_BLOCK = 4
#: Nodes that one job is tried on, the fullest that have room.
MOST_TARGETS = 8


class Move(NamedTuple):
    """One job, and the node where it would go on."""

    of: Movable
    target: str


@dataclass(frozen=True, slots=True)
class Gain:
    """What some moves would free."""

    #: `job`, `node`, `block` or `pair`.
    kind: str
    #: In words.
    what: str
    moves: tuple[Move, ...]
    cost_gpu_s: float
    #: The waiting job that starts by it; 0 for none.
    job: int = 0


#: Whether a node, as it would be, is what is wanted.
Wanted = Callable[[Node], bool]


@dataclass(frozen=True)
class Planner:
    """The nodes and movable jobs of one moment."""

    nodes: Nodes
    movable: Sequence[Movable]
    now: float
    #: Jobs that may be moved for one gain.
    most: int = 3

    def for_job(self, job: QueuedJob, need: Need) -> Gain | None:
        """The cheapest moves after which a waiting job has room; None where there are none."""
        ready = [name for name, node in self.nodes.items() if _fits(need, node)]
        missing = need.nodes - len(ready)
        if missing < 1:
            return None
        nodes = self.nodes
        moves: tuple[Move, ...] = ()
        chosen: list[str] = []
        for _ in range(missing):
            ways = [
                way
                for name in self._by_node
                if name not in ready
                and name not in chosen
                and (
                    way := self._cheapest(
                        nodes,
                        name,
                        lambda node: _fits(need, node),
                        {*ready, *chosen, name},
                        self.most - len(moves),
                    )
                )
            ]
            if not ways:
                return None
            best = min(ways, key=self._rank)
            chosen.append(best[0].of.node)
            nodes, moves = _after(nodes, best), (*moves, *best)
        where = ", ".join(sorted(chosen))
        return self._gain(
            "job", f"job {job.name or job.job_id} starts on {where}", moves, job.job_id
        )

    def nodes_freed(self) -> Iterator[Gain]:
        """Nodes that would be whole, all jobs on them moved to nodes in use."""
        for name in self._used_nodes():
            way = self._emptied(self.nodes, name, {name}, self.most)
            if way:
                yield self._gain("node", f"{name} is whole", way)

    def blocks_freed(self, network: Network) -> Iterator[Gain]:
        """The lowest domains of the network that would be whole."""
        lowest = min((domain.level for domain in network.domains), default=0)
        for domain in network.domains:
            inside = {name for name in domain.nodes if name in self.nodes}
            used = [name for name in inside if name in self._used_nodes()]
            if domain.level != lowest or len(inside) < 2 or not 0 < len(used) <= MOST_IN_BLOCK:
                continue
            nodes = self.nodes
            moves: tuple[Move, ...] = ()
            for name in sorted(used):
                way = self._emptied(nodes, name, inside, self.most - len(moves))
                if not way:
                    break
                nodes, moves = _after(nodes, way), (*moves, *way)
            else:
                yield self._gain("block", f"all of {domain.name} is whole", moves)

    def pairs_freed(self, machines: Machines) -> Iterator[Gain]:
        """Nodes without a free pair on their widest link that would have one."""
        for name in self._used_nodes():
            machine = machines.get(name, UNDECLARED)
            pairs = _widest_pairs(machine.topology) if machine.topology else []
            if not pairs or _has(pairs, machine.free(self.nodes[name].free)):
                continue
            wanted = partial(_has_pair, machine, pairs)
            way = self._cheapest(self.nodes, name, wanted, {name, *self._whole(self.nodes)}, 1)
            if way:
                yield self._gain("pair", f"{name} has a free pair on its widest link", way)

    def _emptied(
        self, nodes: Nodes, name: str, but: Collection[str], most: int
    ) -> tuple[Move, ...]:
        def is_whole(node: Node) -> bool:
            return node.free == node.all_gpus

        # Moving a job to a node nobody uses frees nothing.
        return self._cheapest(nodes, name, is_whole, {*but, *self._whole(nodes)}, most)

    def _used_nodes(self) -> list[str]:
        return sorted(self._by_node)

    @cached_property
    def _by_node(self) -> dict[str, list[Movable]]:
        """The movable jobs of each node, the cheapest first."""
        found: dict[str, list[Movable]] = {}
        for one in sorted(self.movable, key=self._cost):
            here = found.setdefault(one.node, [])
            if one.node in self.nodes and len(here) < MOST_OF_NODE:
                here.append(one)
        return found

    @staticmethod
    def _whole(nodes: Nodes) -> list[str]:
        return [name for name, node in nodes.items() if node.free == node.all_gpus]

    def _cheapest(
        self, nodes: Nodes, name: str, wanted: Wanted, but: Collection[str], most: int
    ) -> tuple[Move, ...]:
        """The cheapest moves off this node, to none of `but`, after which it is as wanted."""
        here = self._by_node.get(name, [])
        sets = (some for size in range(1, most + 1) for some in combinations(here, size))
        for some in sorted(sets, key=lambda some: (sum(map(self._cost, some)), len(some))):
            holds = [one.hold for one in some]
            left = without_holds({name: nodes[name]}, holds)
            if not wanted(left[name]):
                continue
            moves = _placed({**nodes, **left}, sorted(some, key=lambda one: -one.gpus), but)
            if moves is not None:
                return moves
        return ()

    def _cost(self, one: Movable) -> float:
        return one.cost_gpu_s(self.now)

    def _rank(self, moves: tuple[Move, ...]) -> tuple[float, int, str]:
        return sum(self._cost(move.of) for move in moves), len(moves), moves[0].of.node

    def _gain(self, kind: str, what: str, moves: tuple[Move, ...], job: int = 0) -> Gain:
        return Gain(kind, what, moves, sum(self._cost(move.of) for move in moves), job)


def _placed(nodes: Nodes, some: Sequence[Movable], but: Collection[str]) -> tuple[Move, ...] | None:
    """Each job on a node with room, the fullest that works; None where there is no way."""
    if not some:
        return ()
    first, *others = some
    try:
        room = fullest(first.need, {n: node for n, node in nodes.items() if n not in but})
    except Unsupported:
        return None
    for node in room[:MOST_TARGETS]:
        mask = lowest_bits(node.free, first.gpus)
        hold = Hold({node.name: mask}, first.need.cpus, first.need.memory_mb)
        rest = _placed(with_hold(nodes, hold), others, but)
        if rest is not None:
            return (Move(first, node.name), *rest)
    return None


def _after(nodes: Nodes, moves: Sequence[Move]) -> Nodes:
    for one, target in moves:
        nodes = without_holds(nodes, [one.hold])
        mask = lowest_bits(nodes[target].free, one.gpus)
        nodes = with_hold(nodes, Hold({target: mask}, one.need.cpus, one.need.memory_mb))
    return nodes


def _fits(need: Need, node: Node) -> bool:
    try:
        return fits(need, node)
    except Unsupported:
        return False


def _widest_pairs(topology: NodeTopology) -> list[int]:
    """The pairs (masks) that the node's widest links join; none where all links are alike."""
    gbps = topology.bandwidth_gbps
    pairs = [(a, b) for a in range(topology.gpus) for b in range(a)]
    widest = max((float(gbps[pair]) for pair in pairs), default=0.0)
    best = [1 << a | 1 << b for a, b in pairs if float(gbps[a, b]) == widest]
    return best if len(best) < len(pairs) else []


def _has_pair(machine: Machine, pairs: Sequence[int], node: Node) -> bool:
    return _has(pairs, machine.free(node.free))


def _has(pairs: Sequence[int], free: int) -> bool:
    return any(not pair & ~free for pair in pairs)
