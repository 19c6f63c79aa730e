"""What follows from a node's topology alone: distances, sockets, cuts, best and worst sets."""

from __future__ import annotations

from typing import Any

import numpy as np

from gres_topology import NodeTopology
from policies.best_fit import domains
from policies.contract.bits import EXACT_GPUS, Ints, Runs, gpus_of, mask_of, subsets
from policies.matching.links import inside
from policies.topo_aware.fiduccia import bipartition
from policies.topo_aware.graph import distances, host_distances

#: Sets whose cut, paths or sockets are kept: all of a 16-GPU node.
MOST_SETS = 1 << 16


class MachineGraph:
    """One shape of node. `paths(mask)` is eq. 3: the sum of shortest paths inside a set."""

    def __init__(self, topology: NodeTopology) -> None:
        self.topology = topology
        self.distance: Ints = distances(topology)
        #: What halves are cut by: sockets count where direct links make all GPUs near.
        self.apart: Ints = self.distance + host_distances(topology)
        self.sockets = domains(topology)
        self.sizes = tuple(mask.bit_count() for mask in self.sockets)
        #: Sockets (places in `sockets`) that can take each other's place with all their GPUs.
        self.alike: list[list[int]] = []
        if topology.gpus > EXACT_GPUS:
            whole = {socket: at for at, socket in enumerate(self.sockets)}
            groups = [[whole[run] for run in some if run in whole] for some in topology.boards]
            self.alike = [group for group in groups if len(group) > 1]
        #: GPUs that can take each other's place on their socket.
        self.runs = Runs(
            (run & socket for run in topology.runs for socket in self.sockets),
            [tuple(self.sockets[at] for at in group) for group in self.alike],
        )
        self._cuts: dict[int, tuple[int, int]] = {}
        self._sums: list[int] | None = None
        self._paths: dict[int, int] = {}
        self._spread: dict[int, tuple[int, int]] = {}
        self._touched: dict[int, int] = {}
        self._uniform: dict[int, bool] = {}

    def cut(self, mask: int) -> tuple[int, int]:
        """The two halves of a set of two GPUs or more, as masks."""
        halves = self._cuts.get(mask)
        if halves is None:
            _bounded(self._cuts)
            first, second = bipartition(self.apart, gpus_of(mask))
            halves = self._cuts[mask] = (mask_of(first), mask_of(second))
        return halves

    def paths(self, mask: int) -> int:
        """Sum of the shortest paths between the GPUs of a set."""
        total = self._paths.get(mask)
        if total is None:
            _bounded(self._paths)
            gpus = gpus_of(mask)
            total = self._paths[mask] = int(self.distance[:, gpus][gpus, :].sum()) // 2
        return total

    def extremes(self, k: int) -> tuple[int, int]:
        """(least, most) `paths` of k GPUs on the empty node.

        Exact up to 16 GPUs; on larger nodes by growing sets from every GPU.
        """
        if k not in self._spread:
            if self.topology.gpus <= EXACT_GPUS:
                if self._sums is None:
                    self._sums = inside(self.distance).tolist()
                sums = self._sums
                values = [sums[mask] for mask in subsets(self.topology.gpus, k).tolist()]
                self._spread[k] = (min(values), max(values))
            else:
                near = min(self._grown(seed, k, 1) for seed in range(self.topology.gpus))
                far = max(self._grown(seed, k, -1) for seed in range(self.topology.gpus))
                self._spread[k] = (near, max(near, far))
        return self._spread[k]

    def _grown(self, seed: int, k: int, sign: int) -> int:
        chosen, total = [seed], 0
        cost = sign * self.distance[seed].copy()
        for _ in range(k - 1):
            cost[chosen] = np.iinfo(np.int64).max // 2
            at = int(cost.argmin())
            total += sign * int(cost[at])
            chosen.append(at)
            cost = cost + sign * self.distance[at]
        return total

    def touched(self, mask: int) -> int:
        """The sockets a set has GPUs on, as a mask of sockets."""
        sockets = self._touched.get(mask)
        if sockets is None:
            _bounded(self._touched)
            sockets = mask_of(at for at, socket in enumerate(self.sockets) if socket & mask)
            self._touched[mask] = sockets
        return sockets

    def seats(self, mask: int) -> int:
        """The first GPU of each socket that a set touches: the same for all that touch these."""
        touched = self.touched(mask)
        return sum(s & -s for at, s in enumerate(self.sockets) if touched >> at & 1)

    def fewest_sockets(self, k: int) -> int:
        """How many sockets k GPUs need on the empty node."""
        gpus = 0
        for used, size in enumerate(sorted(self.sizes, reverse=True), 1):
            gpus += size
            if gpus >= k:
                return used
        return len(self.sizes)

    def is_uniform(self, mask: int) -> bool:
        """Whether all GPUs of a set are of one socket and equally far from each other."""
        if self.touched(mask).bit_count() != 1:
            return False
        uniform = self._uniform.get(mask)
        if uniform is None:
            _bounded(self._uniform)
            gpus = gpus_of(mask)
            rows = self.distance[:, gpus][gpus, :].tolist()
            others = {row[at] for i, row in enumerate(rows) for at in range(len(row)) if at != i}
            uniform = self._uniform[mask] = len(others) < 2
        return uniform


def _bounded(kept: dict[int, Any]) -> None:
    """Forget everything before there is too much of it."""
    if len(kept) >= MOST_SETS:
        kept.clear()
