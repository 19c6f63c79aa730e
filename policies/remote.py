"""What a job with GPUs on other nodes asks and gets; shared by the R queue and DRMaestro.

A job is made of tasks, one process each. A task has one node for its CPUs and memory; its GPUs
are on that node (local) or lent by others over the network (remote; those nodes are donors).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from policies.contract.bits import mask_of
from policies.contract.nouns import Cluster, NodeState, Request


@dataclass(frozen=True, slots=True)
class RemoteJob:
    """A waiting job. `request.gpus_per_node` holds the GPUs of each task, one entry per task.

    `cpus` and `memory_mb` are what one task needs on its node. `rounds_waited` counts the
    decisions that left it waiting, `postponed` those that did so because of the network.
    `sensitivity` is the share by which a fully loaded network lengthens it (0.17: 17 %);
    `max_slowdown` is the execution time over that alone it still accepts.
    """

    request: Request
    cpus: int = 1
    memory_mb: int = 0
    rounds_waited: int = 0
    postponed: int = 0
    sensitivity: float = 0.0
    max_slowdown: float = float("inf")
    remote_allowed: bool = True


@dataclass(frozen=True, slots=True)
class RemoteTask:
    """Where one task runs: its node, its GPUs there, and (donor, GPU) for each remote one."""

    node: str
    local: tuple[int, ...] = ()
    remote: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RemotePlacement:
    """The answer for one job: a place for each of its tasks, in their order, and why."""

    tasks: tuple[RemoteTask, ...]
    policy: str
    reason: str

    @property
    def remote_gpus(self) -> int:
        """How many GPUs it uses over the network."""
        return sum(len(task.remote) for task in self.tasks)

    @property
    def donors(self) -> Mapping[str, int]:
        """Donor -> mask of the GPUs it lends."""
        lent: dict[str, list[int]] = {}
        for task in self.tasks:
            for name, gpu in task.remote:
                lent.setdefault(name, []).append(gpu)
        return {name: mask_of(gpus) for name, gpus in sorted(lent.items())}


@dataclass(slots=True)
class Room:
    """What is left of one node while a decision is being made.

    `donor_cpus` and `donor_memory_mb` are what each lent GPU's server takes beside the GPU.
    Free CPUs or memory that are not known do not bound.
    """

    name: str
    free: int
    cpus: float
    memory_mb: float
    donor_cpus: int = 0
    donor_memory_mb: int = 0

    @classmethod
    def of(cls, node: NodeState, donor_cpus: int = 0, donor_memory_mb: int = 0) -> Room:
        """The room of a node of a snapshot."""
        cpus = float("inf") if node.free_cpus is None else node.free_cpus
        memory = float("inf") if node.free_memory_mb is None else node.free_memory_mb
        return cls(node.name, node.free, cpus, memory, donor_cpus, donor_memory_mb)

    def hosts(self, job: RemoteJob) -> bool:
        """One more task of that job has its CPUs and memory here."""
        return self.cpus >= job.cpus and self.memory_mb >= job.memory_mb

    def lends(self) -> int:
        """How many GPUs it could lend: each needs the donor's CPUs and memory, too."""
        most = float(self.free.bit_count())
        if self.donor_cpus:
            most = min(most, self.cpus // self.donor_cpus)
        if self.donor_memory_mb:
            most = min(most, self.memory_mb // self.donor_memory_mb)
        return max(0, int(most))

    def host(self, job: RemoteJob) -> None:
        """Take the CPUs and memory of one task."""
        self.cpus -= job.cpus
        self.memory_mb -= job.memory_mb

    def take(self, count: int) -> tuple[int, ...]:
        """Take that many GPUs, lowest first, for a task that runs here."""
        taken: list[int] = []
        while len(taken) < count:
            lowest = self.free & -self.free
            taken.append(lowest.bit_length() - 1)
            self.free ^= lowest
        return tuple(taken)

    def lend(self, count: int) -> tuple[tuple[str, int], ...]:
        """Take that many GPUs for a task elsewhere."""
        self.cpus -= count * self.donor_cpus
        self.memory_mb -= count * self.donor_memory_mb
        return tuple((self.name, gpu) for gpu in self.take(count))


def rooms(cluster: Cluster, donor_cpus: int = 0, donor_memory_mb: int = 0) -> dict[str, Room]:
    """What every node has left, by name in order."""
    return {
        name: Room.of(cluster.nodes[name], donor_cpus, donor_memory_mb)
        for name in sorted(cluster.nodes)
    }


def processes(cluster: Cluster) -> dict[str, int]:
    """Node -> running jobs that use it, as host or as donor."""
    found = dict.fromkeys(cluster.nodes, 0)
    for job in cluster.jobs:
        for name in job.gpus:
            if name in found:
                found[name] += 1
    return found


def copies(found: Iterable[Room]) -> dict[str, Room]:
    """The same rooms once more, to be tried on."""
    return {
        room.name: Room(
            room.name,
            room.free,
            room.cpus,
            room.memory_mb,
            room.donor_cpus,
            room.donor_memory_mb,
        )
        for room in found
    }
