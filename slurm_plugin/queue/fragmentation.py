"""How scattered the free GPUs are: the one definition that the page, the report and metrics use.

A free GPU is *stranded* where fewer GPUs are free on its node than the smallest request, per node,
of the waiting jobs that may run there. Where no such job waits, the usual request of the node's
partitions takes its place. *Fragmentation* is the share of the free GPUs that are stranded: 0
where each of them can serve a job, 1 where none of them can. GPUs of nodes on which Slurm starts
nothing (down, drained) are neither free nor stranded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_plugin.queue.candidates import Need, mask_of_types, may_use
from slurm_plugin.queue.capacity import Node, Nodes
from slurm_plugin.queue.features import Unsupported
from slurm_plugin.slurm.interface import QueuedJob


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """What is free, and what of it no job can use where it is. Nodes that are closed count not."""

    #: GPUs of all nodes, closed ones included.
    total: int = 0
    free: int = 0
    #: Node -> how many of its GPUs are stranded; nodes without any are left out.
    stranded_on: Mapping[str, int] = field(default_factory=dict)
    #: Element k is the number of nodes on which at least k + 1 GPUs are free.
    nodes_with: tuple[int, ...] = ()

    @property
    def stranded(self) -> int:
        """Stranded GPUs of all nodes."""
        return sum(self.stranded_on.values())

    @property
    def share(self) -> float:
        """Fragmentation: stranded GPUs over free ones; 0 where none is free."""
        return self.stranded / self.free if self.free else 0.0

    @property
    def largest(self) -> int:
        """The most GPUs that are free on one node."""
        return len(self.nodes_with)

    @property
    def largest_over_nodes(self) -> tuple[int, int]:
        """Nodes, and GPUs on each, of the largest job that could start; (0, 0) where none can.

        Of equally large jobs the one on fewest nodes.
        """
        jobs = ((count, size) for size, count in enumerate(self.nodes_with, 1))
        return max(jobs, key=lambda job: (job[0] * job[1], -job[0]), default=(0, 0))


def fragmentation_of(
    nodes: Nodes, waiting: Iterable[Need], usual: Mapping[str, int]
) -> Fragmentation:
    """The figures of these nodes.

    `waiting` is what the jobs need that wait for nothing but GPUs, CPUs or memory; `usual` is
    the usual request of each partition (`usual_requests`), 1 for a partition that is missing.
    """
    needs = sorted({need for need in waiting if need.gpus}, key=lambda need: need.gpus)
    stranded: dict[str, int] = {}
    sizes: Counter[int] = Counter()
    for node in nodes.values():
        free = node.free.bit_count() if node.is_open else 0
        if not free:
            continue
        sizes[free] += 1
        if not _is_of_use(node, free, needs, usual):
            stranded[node.name] = free
    largest = max(sizes, default=0)
    return Fragmentation(
        sum(len(node.gpu_types) for node in nodes.values()),
        sum(size * count for size, count in sizes.items()),
        stranded,
        tuple(sum(n for size, n in sizes.items() if size >= k) for k in range(1, largest + 1)),
    )


def _is_of_use(node: Node, free: int, needs: Sequence[Need], usual: Mapping[str, int]) -> bool:
    """Could any job that waits, or a usual one, use the node's free GPUs?"""
    is_wanted = False
    for need in needs:
        if not _may_use(need, node):
            continue
        is_wanted = True
        fitting = node.free & mask_of_types(node.gpu_types, need.types) if need.types else node.free
        if fitting.bit_count() >= need.gpus:
            return True
    requests = [usual.get(name, 1) for name in node.partitions]
    return not is_wanted and free >= min(requests, default=1)


def _may_use(need: Need, node: Node) -> bool:
    """May the job run there? A constraint that cannot be judged keeps it from no node."""
    try:
        return may_use(need, node)
    except Unsupported:
        return True


def usual_requests(jobs: Iterable[QueuedJob]) -> dict[str, int]:
    """Partition -> the most common number of GPUs per node of the jobs that hold some there.

    Of equally common numbers the smallest.
    """
    held: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for job in jobs:
        if job.gpus and job.state != "PENDING":
            held[job.partition][max(map(len, job.gpus.values()))] += 1
    return {
        name: max(counts, key=lambda size: (counts[size], -size))
        for name, counts in held.items()
        if max(counts)
    }
