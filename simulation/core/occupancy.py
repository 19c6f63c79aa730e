"""Which GPUs of the virtual cluster are free, and whether a job of some size fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gres_topology import NodeTopology
from policies import NodeState
from policies.contract.nodes import candidates
from simulation.errors import SimulationError


class FreeCounts:
    """Free GPUs per node as counts: answers "does it fit" without looking at every node."""

    def __init__(self, free: Iterable[int]) -> None:
        self._nodes_with: dict[int, int] = {}
        for count in free:
            self._nodes_with[count] = self._nodes_with.get(count, 0) + 1

    def move(self, before: int, after: int) -> None:
        """A node's free GPUs changed from one count to another."""
        self._nodes_with[before] -= 1
        self._nodes_with[after] = self._nodes_with.get(after, 0) + 1

    def fits(self, counts: tuple[int, ...]) -> bool:
        """Whether there are distinct nodes for every count (any order)."""
        wanted = sorted(counts, reverse=True)
        for place, count in enumerate(wanted, 1):
            if place < len(wanted) and wanted[place] == count:
                continue
            if sum(n for free, n in self._nodes_with.items() if free >= count) < place:
                return False
        return True


class Occupancy:
    """The nodes as policies see them, changed by `take` and `release`."""

    def __init__(self, cluster: Mapping[str, NodeTopology]) -> None:
        full = {
            name: NodeState(name, topology, free=(1 << topology.gpus) - 1)
            for name, topology in cluster.items()
        }
        self.nodes = candidates(full)
        #: How many GPUs each node has free.
        self.free = {name: topology.gpus for name, topology in cluster.items()}
        self.counts = FreeCounts(self.free.values())
        self.gpus = sum(self.free.values())

    def take(self, masks: Mapping[str, int]) -> None:
        """Occupy GPUs; SimulationError where one is not free: the policy's bug."""
        for name, mask in masks.items():
            if name not in self.nodes or mask & ~self.nodes[name].free:
                raise SimulationError(f"{name}: GPUs {mask:x} were placed but are not free")
        self._set({name: self.nodes[name].free & ~mask for name, mask in masks.items()})

    def release(self, masks: Mapping[str, int]) -> None:
        """Free GPUs that were taken."""
        self._set({name: self.nodes[name].free | mask for name, mask in masks.items()})

    def _set(self, free: Mapping[str, int]) -> None:
        table = self.nodes.table
        for name, mask in free.items():
            self.counts.move(self.free[name], mask.bit_count())
            self.free[name] = mask.bit_count()
            table.set_free(table.place[name], mask)
