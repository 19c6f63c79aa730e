"""What Slurm's own choice goes by: nodes with GPUs and cores by socket, and what a job asks for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from gres_topology import NodeTopology
from gres_topology.slurm_files.gres_file import link_counts


class NodeOrder(Enum):
    """How a site has cons_tres choose among nodes of equal weight."""

    #: The default: the first of the lowest-numbered nodes that suffice.
    BEST_FIT = "best-fit"
    #: SelectTypeParameters=CR_LLN: the node with the largest share of its cores free.
    LEAST_LOADED = "lln"
    #: SchedulerParameters=pack_serial_at_end: jobs of one CPU go to the last node.
    SERIAL_AT_END = "serial-at-end"


@dataclass(frozen=True, slots=True, eq=False)
class StockMachine:
    """A kind of node as slurm.conf and gres.conf describe it; `machine_of` makes each once."""

    #: Mask of the GPUs beside each socket's cores.
    sockets: tuple[int, ...]
    cores_per_socket: int
    #: Mask of the GPUs that gres.conf ties to no socket.
    anywhere: int = 0
    #: gres.conf's Links, one row per GPU; empty: gres.conf has none.
    links: tuple[tuple[int, ...], ...] = ()

    @property
    def gpus(self) -> int:
        """How many GPUs it has."""
        return sum(mask.bit_count() for mask in (*self.sockets, self.anywhere))

    @property
    def cores(self) -> int:
        """How many cores it has."""
        return len(self.sockets) * self.cores_per_socket


@lru_cache(maxsize=1024)
def machine_of(topology: NodeTopology, cores_per_gpu: int, *, has_links: bool) -> StockMachine:
    """The machine of a topology, with a socket for each NUMA node that has GPUs.

    Where NUMA nodes are not known it has one socket, to which gres.conf ties no GPU.
    """
    numbers = sorted({number for number in topology.numa if number is not None})
    sockets = [
        sum(1 << gpu for gpu in range(topology.gpus) if topology.numa[gpu] == number)
        for number in numbers
    ] or [0]
    each = -(-topology.gpus * cores_per_gpu // len(sockets))
    links = tuple(link_counts(topology, gpu) for gpu in range(topology.gpus)) if has_links else ()
    return StockMachine(tuple(sockets), each, (1 << topology.gpus) - 1 - sum(sockets), links)


@dataclass(frozen=True, slots=True)
class StockNode:
    """A node at the moment of the choice."""

    name: str
    machine: StockMachine
    #: Mask of the free GPUs.
    free: int
    #: Free cores of each socket.
    cores: tuple[int, ...]
    #: slurm.conf's Weight: nodes of a lower one are taken first.
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Ask:
    """One job: `--gres=gpu:N` or `--gpus=N`, on so many nodes, without a number of tasks."""

    #: GPUs on each node (`--gres`), or of the whole job where `is_total` (`--gpus`).
    gpus: int
    #: `--nodes`; 0: as many as it takes.
    nodes: int = 0
    is_total: bool = False
    #: `--cpus-per-task`.
    cpus_per_task: int = 1
    #: `--cpus-per-gpu`, or DefCpuPerGPU; 0: none.
    cpus_per_gpu: int = 0

    @property
    def least_nodes(self) -> int:
        """On how many nodes it runs at least."""
        return max(self.nodes, 1)

    @property
    def per_node(self) -> int:
        """GPUs asked for on each node; 0 with `--gpus`."""
        return 0 if self.is_total else self.gpus

    @property
    def per_job(self) -> int:
        """GPUs asked for in all; 0 with `--gres`."""
        return self.gpus if self.is_total else 0

    def gpu_cpus(self, nodes: int) -> int:
        """CPUs that `cpus_per_gpu` asks for on so many nodes, 0 for none."""
        return self.cpus_per_gpu * (self.per_job or self.per_node * nodes)

    @property
    def least_cpus(self) -> int:
        """How many CPUs it needs in all."""
        return max(self.least_nodes * self.cpus_per_task, self.gpu_cpus(self.least_nodes))

    @property
    def node_gpu_cpus(self) -> int:
        """CPUs that `cpus_per_gpu` asks for on a node at least, 0 for none."""
        return self.cpus_per_gpu * (self.per_node or 1)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a job gets of one node: a mask of GPUs, and how many cores of each socket."""

    gpus: int
    cores: tuple[int, ...]
