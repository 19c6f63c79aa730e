"""What nodes have left while a decision about remote GPUs is being made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from policies.contract.bits import gpus_of, mask_of
from policies.remote.jobs import RemoteJob


@dataclass(slots=True)
class NodeCapacity:
    """What is left of one node; infinity where CPUs or memory are not known."""

    name: str
    #: Mask of the free GPUs.
    free: int
    cpus: float
    memory_mb: float
    #: What the server of each GPU on loan takes of its donor.
    donor_cpus: int = 0
    donor_memory_mb: int = 0

    def copy(self) -> NodeCapacity:
        """The same, to be changed on trial."""
        return NodeCapacity(
            self.name, self.free, self.cpus, self.memory_mb, self.donor_cpus, self.donor_memory_mb
        )

    def can_host(self, job: RemoteJob) -> bool:
        """Whether one more task of that job may run, and has its CPUs and memory, here."""
        is_host = not job.hosts or self.name in job.hosts
        return is_host and self.cpus >= job.cpus and self.memory_mb >= job.memory_mb

    def host(self, job: RemoteJob) -> None:
        """Take the CPUs and memory of one task."""
        self.cpus -= job.cpus
        self.memory_mb -= job.memory_mb

    def lendable(self) -> int:
        """How many GPUs it could lend: each needs the donor's CPUs and memory, too."""
        most = float(self.free.bit_count())
        if self.donor_cpus:
            most = min(most, self.cpus // self.donor_cpus)
        if self.donor_memory_mb:
            most = min(most, self.memory_mb // self.donor_memory_mb)
        return max(0, int(most))

    def take(self, count: int) -> tuple[int, ...]:
        """Take that many GPUs, lowest first, for a task that runs here."""
        taken = gpus_of(self.free)[:count]
        self.free &= ~mask_of(taken)
        return taken

    def lend(self, count: int) -> tuple[tuple[str, int], ...]:
        """Take that many GPUs for a task elsewhere."""
        self.cpus -= count * self.donor_cpus
        self.memory_mb -= count * self.donor_memory_mb
        return tuple((self.name, gpu) for gpu in self.take(count))


Capacities = Mapping[str, NodeCapacity]


def copies(nodes: Iterable[NodeCapacity]) -> dict[str, NodeCapacity]:
    """Copies by name, to be changed on trial."""
    return {node.name: node.copy() for node in nodes}
