"""The physical graph of one kind of node and the distances in it (SC17, section 4.1.2).

Levels machine / socket / switch / GPU with qualitative weights, larger higher up; a direct
link is an edge between two GPUs. A path never runs through a third GPU: none forwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from gres_topology import NodeTopology
from gres_topology.links import is_direct
from policies.best_fit import domains
from policies.contract.bits import Ints, gpus_of

#: Distances are whole numbers of this part of a weight, so that equal sums are equal.
SCALE = 1000


#: Weights of the edges from a GPU, a switch and a socket upwards; figure 7 has 1 and 20.
GPU_WEIGHT, SWITCH_WEIGHT, SOCKET_WEIGHT = 1.0, 5.0, 20.0
#: That of each network switch between two nodes: the network is the highest level.
HOP_WEIGHT = 100.0


#: A GPU by its number, a switch, a socket or the machine by name.
Vertex = int | str


class Edge(NamedTuple):
    """One of the tree: each vertex but the machine has one above it."""

    below: Vertex
    above: Vertex
    weight: float


def _joined(topology: NodeTopology, gpus: Sequence[int], kinds: Collection[str]) -> list[set[int]]:
    """The GPUs in groups: those that links of these kinds join, directly or by others."""
    groups: list[set[int]] = []
    for gpu in gpus:
        near = {other for other in gpus if topology.kinds[gpu][other] in kinds}
        touched = [group for group in groups if near & group]
        groups = [group for group in groups if not near & group]
        groups.append({gpu}.union(*touched))
    return groups


def host_tree(topology: NodeTopology) -> list[Edge]:
    """GPUs (vertices 0..n-1), switches, sockets and the machine, without direct links.

    Switches are groups of GPUs below one switch, then below a tree of switches, within one socket.
    """
    tree: list[Edge] = []
    for number, mask in enumerate(domains(topology)):
        socket = f"socket {number}"
        tree.append(Edge(socket, "machine", SOCKET_WEIGHT))
        members = gpus_of(mask)
        groups = [_joined(topology, members, kinds) for kinds in (("PIX",), ("PIX", "PXB"))]
        for gpu in members:
            below: Vertex = gpu
            inside = {gpu}
            for level in groups:
                group = next(group for group in level if gpu in group)
                if group == inside:
                    continue
                switch = f"switch {','.join(map(str, sorted(group)))}"
                tree.append(Edge(below, switch, GPU_WEIGHT if below == gpu else SWITCH_WEIGHT))
                below, inside = switch, group
            tree.append(Edge(below, socket, GPU_WEIGHT if below == gpu else SWITCH_WEIGHT))
    return tree


def host_distances(topology: NodeTopology) -> Ints:
    """Shortest paths through the host, as if there were no direct links; as `distances`."""
    n = topology.gpus
    above = {edge.below: edge for edge in host_tree(topology)}
    #: By GPU: what is above it, and how far.
    ways: list[dict[Vertex, float]] = []
    for gpu in range(n):
        at: Vertex = gpu
        way = {at: 0.0}
        while at in above:
            edge = above[at]
            way[edge.above] = way[at] + edge.weight
            at = edge.above
        ways.append(way)
    distances = np.zeros((n, n), dtype=np.int64)
    for one, other in itertools.combinations(range(n), 2):
        far = min(ways[one][at] + ways[other][at] for at in ways[one].keys() & ways[other].keys())
        distances[one, other] = distances[other, one] = round(SCALE * far)
    return distances


def distances(topology: NodeTopology) -> Ints:
    """Shortest paths between GPUs in 1/SCALE of a weight, shape (gpus, gpus), int64.

    A direct link weighs 1 where it is the node's widest, and up to 2 the narrower it is.
    """
    n = topology.gpus
    shortest = host_distances(topology)
    direct = [
        (a, b) for a in range(n) for b in range(n) if a != b and is_direct(topology.kinds[a][b])
    ]
    links = topology.bandwidth_gbps
    widest = max((float(links[pair]) for pair in direct), default=0.0)
    for pair in direct:
        share = float(links[pair]) / widest if widest > 0 else 1.0
        shortest[pair] = min(int(shortest[pair]), round(SCALE * GPU_WEIGHT * (2.0 - share)))
    return shortest
