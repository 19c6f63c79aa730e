"""The physical graph of one kind of node and the distances in it (SC17, section 4.1.2).

Levels machine / socket / switch / GPU with qualitative weights, larger higher up; a direct
link is an edge between two GPUs. A path never runs through a third GPU: none forwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gres_topology import NodeTopology
from gres_topology.links import is_direct
from policies.best_fit import domains
from policies.contract.bits import Ints, gpus_of

if TYPE_CHECKING:  # else where it is used: an engine without this policy starts sooner
    import networkx as nx

#: Distances are whole numbers of this part of a weight, so that equal sums are equal.
SCALE = 1000


#: Weights of the edges from a GPU, a switch and a socket upwards; figure 7 has 1 and 20.
GPU_WEIGHT, SWITCH_WEIGHT, SOCKET_WEIGHT = 1.0, 5.0, 20.0
#: That of each network switch between two nodes: the network is the highest level.
HOP_WEIGHT = 100.0


def _switches(topology: NodeTopology, gpus: Sequence[int]) -> list[list[frozenset[int]]]:
    """Groups of GPUs below one switch, then below a tree of switches, within one socket."""
    import networkx as nx

    levels = []
    for kinds in (("PIX",), ("PIX", "PXB")):
        graph = nx.Graph()
        graph.add_nodes_from(gpus)
        graph.add_edges_from(
            (a, b) for a in gpus for b in gpus if a < b and topology.kinds[a][b] in kinds
        )
        levels.append([frozenset(group) for group in nx.connected_components(graph)])
    return levels


def host_tree(topology: NodeTopology) -> nx.Graph:
    """GPUs (vertices 0..n-1), switches, sockets and the machine, without direct links."""
    import networkx as nx

    tree = nx.Graph()
    tree.add_node("machine")
    for number, mask in enumerate(domains(topology)):
        socket = f"socket {number}"
        tree.add_edge(socket, "machine", weight=SOCKET_WEIGHT)
        members = gpus_of(mask)
        groups = _switches(topology, members)
        for gpu in members:
            below: int | str = gpu
            inside = frozenset({gpu})
            for level in groups:
                group = next(group for group in level if gpu in group)
                if group == inside:
                    continue
                switch = f"switch {','.join(map(str, sorted(group)))}"
                tree.add_edge(below, switch, weight=GPU_WEIGHT if below == gpu else SWITCH_WEIGHT)
                below, inside = switch, group
            tree.add_edge(below, socket, weight=GPU_WEIGHT if below == gpu else SWITCH_WEIGHT)
    return tree


def host_distances(topology: NodeTopology) -> Ints:
    """Shortest paths through the host, as if there were no direct links; as `distances`."""
    import networkx as nx

    n = topology.gpus
    tree = host_tree(topology)
    distances = np.zeros((n, n), dtype=np.int64)
    for gpu in range(n):
        lengths = nx.single_source_dijkstra_path_length(tree, gpu)
        for other in range(n):
            distances[gpu, other] = round(SCALE * lengths[other])
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
