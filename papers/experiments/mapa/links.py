"""MAPA's x, y and z: double NVLinks, single NVLinks and PCIe links that some GPUs' rings use."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import combinations, pairwise

from gres_topology import NodeTopology
from policies.bandwidth.model import ring_orders

#: (double NVLinks, single NVLinks, PCIe links).
Links = tuple[int, int, int]
#: Table 1: GB/s of each of them.
PEAK_GBPS = (50.0, 25.0, 12.0)


def _counted(kinds: Iterable[str]) -> Links:
    listed = list(kinds)
    double, single = listed.count("NV2"), listed.count("NV1")
    return double, single, len(listed) - double - single


@lru_cache(maxsize=1 << 16)
def ring_links(topology: NodeTopology, gpus: tuple[int, ...], pair: int = 1) -> tuple[Links, ...]:
    """What the rings over two GPUs or more use, each combination once.

    `pair` says how often the link between two GPUs counts: a ring of two is there and back.
    """
    kinds = topology.kinds
    if len(gpus) == 2:
        return (_counted([kinds[gpus[0]][gpus[1]]] * pair),)
    unique: dict[Links, None] = {}
    for order in ring_orders(len(gpus)).tolist():
        ends = [gpus[place] for place in order]
        unique[_counted(kinds[a][b] for a, b in pairwise(ends))] = None
    return tuple(unique)


def clique_links(topology: NodeTopology, gpus: tuple[int, ...]) -> Links:
    """What all pairs of the GPUs use."""
    return _counted(topology.kinds[a][b] for a, b in combinations(gpus, 2))


def aggregate_gbps(links: Links) -> float:
    """Eq. 1: the sum of the links' peaks, GB/s."""
    return sum(count * gbps for count, gbps in zip(links, PEAK_GBPS, strict=True))
