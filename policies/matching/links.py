"""A node's links as whole numbers of MB/s, so that sums of equal links are exactly equal."""

from __future__ import annotations

import numpy as np

from gres_topology import NodeTopology
from gres_topology.links import is_direct
from policies.contract.bits import Ints

#: MB/s in one GB/s (vendors' decimal units).
MB_PER_GB = 1000
#: Measured over nominal bandwidth, the mean of what MAPA's eq. 2 gives for one NV2 (39.08 of
#: 50 GB/s), one NV1 (21.61 of 25) and one PCIe link (10.09 of 12).
RING_EFFICIENCY = 0.83
#: The weight of a link that may not be used; sums of it stay far from overflow.
FORBIDDEN = -(1 << 50)


def link_mbps(topology: NodeTopology) -> Ints:
    """Bandwidth between every two GPUs in MB/s, shape (gpus, gpus), zero diagonal."""
    return topology.bandwidth_mbps


def widths(weights: Ints) -> list[int]:
    """The different link bandwidths of a node, widest first."""
    upper = weights[np.triu_indices(len(weights), 1)]
    return sorted((int(width) for width in np.unique(upper)), reverse=True)


def at_least(weights: Ints, width: int) -> Ints:
    """The same links with those narrower than `width` forbidden."""
    kept = np.where(weights >= width, weights, FORBIDDEN)
    np.fill_diagonal(kept, 0)
    return kept


def inside(weights: Ints) -> Ints:
    """Sum of the links inside every mask, shape (2**gpus,): eq. 3 of MAPA for what is left."""
    n = len(weights)
    total = np.zeros(1 << n, dtype=np.int64)
    for gpu in range(n):
        bit = 1 << gpu
        to_mask = np.zeros(bit, dtype=np.int64)
        for other in range(gpu):
            low = 1 << other
            to_mask[low : 2 * low] = to_mask[:low] + weights[gpu, other]
        total[bit : 2 * bit] = total[:bit] + to_mask
    return total


def host_mbps(topology: NodeTopology) -> int:
    """The widest path through the host between two GPUs in MB/s, 0 if there is none."""
    n = topology.gpus
    return max(
        (
            round(1000 * float(topology.bandwidth_gbps[i, j]))
            for i in range(n)
            for j in range(i)
            if not is_direct(topology.kinds[i][j])
        ),
        default=0,
    )
