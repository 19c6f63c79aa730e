"""The machines once more, with what the paper leaves open about them varied."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from gres_topology import NodeTopology

#: What the authors' code says where the catalog's graph departs from it: (a, b, kind).
AS_IN_THEIR_CODE = {
    "torus-16": ((0, 4, "SYS"),),
    "cubemesh-16": ((0, 11, "NV1"), (1, 5, "NV1"), (3, 8, "NV1"), (9, 13, "NV1")),
}
_GBPS = {"NV1": 25.0, "SYS": 12.0}


def as_in_their_code(topology: NodeTopology) -> NodeTopology:
    """The machine with the links the authors' code gives it."""
    kinds = [list(row) for row in topology.kinds]
    links = topology.bandwidth_gbps.copy()
    for a, b, kind in AS_IN_THEIR_CODE[topology.name]:
        kinds[a][b] = kinds[b][a] = kind
        links[a, b] = links[b, a] = _GBPS[kind]
    return replace(topology, kinds=tuple(map(tuple, kinds)), bandwidth_gbps=links)


def renumbered(topology: NodeTopology, seed: int) -> NodeTopology:
    """The machine with its GPUs numbered by chance, sockets and all."""
    order = list(range(topology.gpus))
    Random(seed).shuffle(order)
    return replace(
        topology,
        kinds=tuple(tuple(topology.kinds[a][b] for b in order) for a in order),
        bandwidth_gbps=topology.bandwidth_gbps[np.ix_(order, order)],
        numa=tuple(topology.numa[a] for a in order),
        cpus=tuple(topology.cpus[a] for a in order),
    )
