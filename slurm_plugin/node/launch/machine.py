"""One kind of node as a launch sees it: everything by Slurm's GPU index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gres_topology import NodeTopology, pci
from gres_topology.topology import Nic
from policies.contract.bits import EXACT_GPUS, gpus_of, mask_of, rows_of
from policies.matching.large import grow
from policies.scoring.rank_order import rank_order
from policies.scoring.tables import tables
from slurm_plugin.errors import PluginError

#: Paths to a NIC that are worth a hint, nearest first; SYS crosses the sockets' link.
NEAR = ("PIX", "PXB", "PHB", "NODE")
#: As the C plugin's lists.h: GPUs, NUMA nodes and CPUs of one node.
MOST_GPUS, MOST_NUMA, MOST_CPUS = 128, 64, 8192


@dataclass(frozen=True)
class LaunchMachine:
    """A topology and `to_topology[s]`, the topology's index of Slurm's GPU s.

    PluginError if the two do not fit, or the machine is larger than a table can be.
    """

    topology: NodeTopology
    to_topology: tuple[int, ...]

    def __post_init__(self) -> None:
        count, name = self.topology.gpus, self.topology.name
        if sorted(self.to_topology) != list(range(count)):
            raise PluginError(
                f"{name}: index mapping {list(self.to_topology)}; expected each of 0..{count - 1}"
                " once"
            )
        if not 0 < count <= MOST_GPUS:
            raise PluginError(f"{name}: {count} GPUs; expected 1 to {MOST_GPUS}")
        numbers = [node.number for node in self.topology.numa_nodes] + [
            numa for numa in self.topology.numa if numa is not None
        ]
        cpus = [cpu for known in self.numa_cpus.values() for cpu in known]
        if max(numbers, default=0) >= MOST_NUMA or max(cpus, default=0) >= MOST_CPUS:
            raise PluginError(
                f"{name}: expected NUMA nodes below {MOST_NUMA} and CPUs below {MOST_CPUS}"
            )

    @property
    def gpus(self) -> int:
        """How many GPUs the node has."""
        return self.topology.gpus

    @property
    def is_amd(self) -> bool:
        """Whether ROCr counts the GPUs, and not CUDA."""
        kinds = {kind for row in self.topology.kinds for kind in row}
        model = (self.topology.model or "").upper()
        return any(kind.startswith("XGMI") for kind in kinds) or "AMD" in model

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """The number of each of Slurm's GPUs for CUDA (in PCI order) or ROCr on the whole node.

        By PCI address where all are known; else the topology's order, which is the same.
        """
        places = [pci.place(self.topology.pci[gpu] or "") for gpu in self.to_topology]
        known = [place for place in places if place is not None]
        if len(set(known)) < self.gpus:
            return self.to_topology
        ranked = sorted(known)
        return tuple(ranked.index(address) for address in known)

    @cached_property
    def minors(self) -> tuple[int | None, ...]:
        """The device file's number of each of Slurm's GPUs."""
        return tuple(self.topology.minors[gpu] for gpu in self.to_topology)

    @cached_property
    def numa(self) -> tuple[int | None, ...]:
        """The NUMA node of each of Slurm's GPUs."""
        return tuple(self.topology.numa[gpu] for gpu in self.to_topology)

    @cached_property
    def numa_cpus(self) -> dict[int, tuple[int, ...]]:
        """Logical CPUs by NUMA node, from the nodes themselves or else from their GPUs."""
        known = {node.number: node.cpus for node in self.topology.numa_nodes if node.cpus}
        for numa, cpus in zip(self.topology.numa, self.topology.cpus, strict=True):
            if numa is not None and cpus:
                known.setdefault(numa, tuple(cpus))
        return known

    @cached_property
    def numa_memory_mb(self) -> dict[int, int]:
        """Memory by NUMA node, where the topology knows it."""
        nodes = self.topology.numa_nodes
        return {node.number: node.memory_mb for node in nodes if node.memory_mb is not None}

    @cached_property
    def nics(self) -> tuple[tuple[str, ...], ...]:
        """The NICs nearest to each of Slurm's GPUs; none where all are across the sockets."""
        return tuple(_nearest(self.topology.nics, gpu) for gpu in self.to_topology)

    def default_order(self, pattern: str) -> tuple[int, ...]:
        """All GPUs in the order of sets that have no row: ascending, above 16 GPUs along links."""
        if self.gpus <= EXACT_GPUS:
            return tuple(range(self.gpus))
        grown = grow(self.topology, pattern, self.gpus, (1 << self.gpus) - 1)
        return self._to_slurm(grown[0].order)

    def order(self, pattern: str, gpus: Sequence[int]) -> tuple[int, ...]:
        """A set of Slurm's GPUs in rank order: the matching with the widest weakest link.

        It does not depend on the policy that chose the set.
        """
        if self.gpus > EXACT_GPUS:
            return tuple(gpu for gpu in self.default_order(pattern) if gpu in set(gpus))
        chosen = tuple(sorted(self.to_topology[gpu] for gpu in gpus))
        table = tables.of(self.topology, pattern).sets(len(chosen))
        weakest = int(table.weakest[rows_of(self.gpus)[mask_of(chosen)]])
        return self._to_slurm(rank_order(self.topology, pattern, chosen, weakest, "widest"))

    def orders(self, pattern: str) -> dict[int, tuple[int, ...]]:
        """Mask of Slurm's GPUs -> rank order, for every set that is not simply ascending."""
        if self.gpus > EXACT_GPUS:
            return {}
        orders = {}
        for mask in range(1, 1 << self.gpus):
            order = self.order(pattern, gpus_of(mask))
            if order != gpus_of(mask):
                orders[mask] = order
        return orders

    def _to_slurm(self, gpus: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.to_topology.index(gpu) for gpu in gpus)


def machine_of(topology: NodeTopology, to_topology: Sequence[int] | None = None) -> LaunchMachine:
    """The machine; `to_topology` None is the identity."""
    mapping = tuple(range(topology.gpus)) if to_topology is None else tuple(to_topology)
    return LaunchMachine(topology, mapping)


def _nearest(nics: Sequence[Nic], gpu: int) -> tuple[str, ...]:
    for kind in NEAR:
        near = tuple(nic.name for nic in nics if nic.kinds[gpu] == kind)
        if near:
            return near
    return ()
