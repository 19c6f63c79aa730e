"""Several rings at once: what NCCL and RCCL reach where links are cables of their own.

They open several channels, rings and trees that share no link, in both directions. The narrowest
cut bounds what fits: all that two parts of a set exchange goes over the links between them. Trees
attain the bound (Edmonds 1973); rings alone attain it or fall one link short on every set of the
catalog's meshes of eight GPUs.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from gres_topology import NodeTopology
from gres_topology.links import is_direct, link_count
from policies.bandwidth.base import BandwidthModel
from policies.contract.bits import EXACT_GPUS, Floats, Ints, members, subsets
from policies.matching.links import MB_PER_GB, RING_EFFICIENCY, inside, link_mbps

#: More NVLinks than any GPU has ports (Hopper and Blackwell: 18) lead to a switch.
MOST_PORTS = 18
#: Cuts of one and two GPUs are always looked at, all cuts on nodes of up to this many.
ALL_CUTS_GPUS = 8


def cables_mbps(topology: NodeTopology) -> Ints:
    """The direct links in MB/s, 0 elsewhere, shape (gpus, gpus)."""
    direct = np.array([[is_direct(kind) for kind in row] for row in topology.kinds])
    return np.where(direct, link_mbps(topology), 0)


class Cables(BandwidthModel):
    """Rings of three GPUs or more over a mesh of NVLink or xGMI cables.

    0.83 x the narrowest cut of the set, per direction, where it has a ring of such links, else
    0.83 x its widest ring's weakest link.
    """

    name = "cables"

    def refusal(self, topology: NodeTopology, pattern: str, k: int) -> str | None:
        """Why the model does not hold for this machine, pattern and size; None if it does."""
        if pattern != "ring":
            return f"cables holds for rings, not for {pattern}"
        if k < 3:
            return f"cables holds for 3 GPUs or more, not for {k}"
        if topology.gpus > EXACT_GPUS:
            return f"cables holds for up to {EXACT_GPUS} GPUs, not for {topology.gpus}"
        ports = max(
            sum(link_count(kind) for kind in row if kind.startswith("NV")) for row in topology.kinds
        )
        if ports > MOST_PORTS:
            return f"cables holds for cables, not for a switch ({ports} NVLinks at one GPU)"
        mesh = cables_mbps(topology)
        if not mesh.any():
            return "cables holds for NVLink or xGMI, not for PCIe alone"
        host = int(np.where(mesh > 0, 0, link_mbps(topology)).max())
        if host >= int(mesh[mesh > 0].min()):
            return "cables holds where every cable is wider than a path over the host"
        return None

    def effbw_gbps(self, topology: NodeTopology, k: int, weakest: Ints) -> Floats:
        """GB/s for every row of `members(gpus, k)`."""
        mesh = cables_mbps(topology)
        has_ring = weakest >= int(mesh[mesh > 0].min())
        reached = np.where(has_ring, np.maximum(weakest, narrowest_cut(mesh, k)), weakest)
        return np.asarray(reached * (RING_EFFICIENCY / MB_PER_GB), dtype=np.float64)


def narrowest_cut(mesh: Ints, k: int) -> Ints:
    """For every row of `subsets(gpus, k)` the least sum of links between two parts, MB/s."""
    gpus = len(mesh)
    within, masks, held = inside(mesh), subsets(gpus, k), members(gpus, k)
    total = within[masks]
    largest = k // 2 if gpus <= ALL_CUTS_GPUS else min(2, k // 2)
    narrowest: Ints = np.full(len(masks), np.iinfo(np.int64).max)
    bits = np.left_shift(1, held)
    for size in range(1, largest + 1):
        for places in combinations(range(k), size):
            part = bits[:, places].sum(axis=1)
            np.minimum(narrowest, total - within[part] - within[masks ^ part], out=narrowest)
    return narrowest
