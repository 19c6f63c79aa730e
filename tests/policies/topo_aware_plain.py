"""TOPO-AWARE the straightforward way: every node, every term from its definition, no table.

What the policy computes by group, incrementally and from tables is held equal to this.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import combinations

import networkx as nx

from gres_topology import NodeTopology
from gres_topology.links import is_direct
from policies import Cluster, NodeState, Request
from policies.best_fit import domains
from policies.contract.bits import gpus_of
from policies.contract.interference import (
    WORST,
    Interference,
    Kind,
    kind_of_request,
    kind_of_running,
    weight_of,
)
from policies.topo_aware.fiduccia import bipartition
from policies.topo_aware.graph import distances, host_distances, host_tree

Set = tuple[int, ...]


@cache
def tree(topology: NodeTopology) -> nx.Graph:
    graph = nx.Graph()
    graph.add_weighted_edges_from(host_tree(topology))
    return graph


@cache
def halves(topology: NodeTopology, free: Set) -> tuple[Set, Set]:
    apart = distances(topology) + host_distances(topology)
    return bipartition(apart, free)


@cache
def path(topology: NodeTopology, a: int, b: int) -> Fraction:
    """The shortest path: through the host, or the direct link."""
    length = Fraction(nx.shortest_path_length(tree(topology), a, b, "weight"))
    widest = (
        max(
            topology.bandwidth_gbps[i, j]
            for i, j in combinations(range(topology.gpus), 2)
            if is_direct(topology.kinds[i][j])
        )
        if is_direct(topology.kinds[a][b])
        else 0
    )
    if widest:
        share = topology.bandwidth_gbps[a, b] / widest
        length = min(length, Fraction(round(1000 * (2 - share)), 1000))
    return length


@cache
def paths(topology: NodeTopology, gpus: Set) -> Fraction:
    return sum((path(topology, a, b) for a, b in combinations(gpus, 2)), Fraction(0))


@cache
def extremes(topology: NodeTopology, k: int) -> tuple[Fraction, Fraction]:
    sums = [paths(topology, gpus) for gpus in combinations(range(topology.gpus), k)]
    return min(sums), max(sums)


class Node:
    """One node as a job sees it."""

    def __init__(self, state: NodeState, cluster: Cluster, request: Request, known: Interference):
        self.state, self.topology, self.known = state, state.topology, known
        self.sockets = [set(gpus_of(mask)) for mask in domains(state.topology)]
        self.kind = kind_of_request(request)
        self.weight = weight_of(self.kind.batch) if request.sensitive else 0
        self.join = cache(self.join)  # the same halves are asked for over and over
        self.beside: list[tuple[set[int], Kind]] = []
        self.memory_used = 0.0
        for job in cluster.jobs:
            busy = job.gpus.get(state.name, 0) & ~state.free
            if busy:
                self.beside.append((set(gpus_of(busy)), kind_of_running(job)))
                self.memory_used += job.memory_gbps

    def terms(self, gpus: Set) -> tuple[float, float, float, float]:
        used = [socket for socket in self.sockets if socket & set(gpus)]
        near = [kind for busy, kind in self.beside if any(busy & socket for socket in used)]
        slowed = [max((self.known.factor(self.kind, kind) for kind in near), default=1.0)]
        slowed += [self.known.factor(kind, self.kind) for kind in near]
        calm = 1 - (sum(slowed) / len(slowed) - 1) / (WORST - 1)
        left = set(gpus_of(self.state.free)) - set(gpus)
        free = sum(len(socket & left) / len(socket) for socket in used) / len(used)
        sizes = sorted(map(len, self.sockets), reverse=True)
        fewest = next(n for n in range(1, len(sizes) + 1) if sum(sizes[:n]) >= len(gpus))
        most = min(len(gpus), len(sizes))
        pieces = (len(used) - fewest) / (most - fewest) if most > fewest else 0.0
        whole = (1 - free) * (1 - pieces)
        least, longest = extremes(self.topology, len(gpus))
        if least == longest:
            return (calm + whole) / 2, 1.0, calm, whole
        cost = float((paths(self.topology, gpus) - least) / (longest - least))
        close = 1 - self.weight / 4 * cost
        return (close + calm + whole) / 3, close, calm, whole

    def utility(self, gpus: Set) -> float:
        return round(self.terms(gpus)[0], 9)

    def drb(self, tasks: int, free: Set) -> Set:
        """Algorithm 2; `free` ascending."""
        if tasks == 0:
            return ()
        if len(free) == 1:
            return free
        first, second = halves(self.topology, free)
        here = 0
        for task in range(tasks):
            left = tasks - task
            there = task - here
            if here == len(first) or there == len(second):
                here += here < len(first)
                continue
            on_first = min(len(first), here + left)
            on_second = tasks - min(len(second), there + left)
            here += (
                self.join(tasks, on_first, first, second)[0]
                >= (self.join(tasks, on_second, first, second)[0])
            )
        return self.join(tasks, here, first, second)[1]

    def join(self, tasks: int, here: int, first: Set, second: Set) -> tuple[float, Set]:
        gpus = tuple(sorted(self.drb(here, first) + self.drb(tasks - here, second)))
        return self.utility(gpus), gpus


def place(
    request: Request, cluster: Cluster, known: Interference, socket_memory_gbps: float = 0.0
) -> dict[str, tuple[Set, tuple[float, float, float, float]]] | None:
    """node -> (GPUs, terms); None where no node has the memory bandwidth."""
    need = float(request.options.get("memory-bandwidth", "0"))
    packing = -1 if request.options.get("spread") == "yes" else 1
    chosen: dict[str, tuple[Set, tuple[float, float, float, float]]] = {}
    for count in request.gpus_per_node:
        ranked = []
        for name, state in cluster.nodes.items():
            node = Node(state, cluster, request, known)
            room = socket_memory_gbps * len(node.sockets)
            if name in chosen or state.free.bit_count() < count:
                continue
            if need and room and node.memory_used + need > room:
                continue
            gpus = node.drb(count, gpus_of(state.free))
            left = packing * (state.free.bit_count() - count)
            key = (state.weight, -node.utility(gpus), left, name)
            ranked.append((key, gpus, node.terms(gpus)))
        if not ranked:
            return None
        best = min(ranked)
        chosen[best[0][3]] = best[1:]
    return chosen
