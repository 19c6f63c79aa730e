"""What Slurm says at one moment: its queue, its nodes, and settings that change seldom."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from policies.best_fit import domains
from slurm_plugin.decide.machines import Machines, mask_of
from slurm_plugin.decide.neighbours import Neighbours
from slurm_plugin.gates.released import about_to_run
from slurm_plugin.slurm.interface import QueuedJob, SlurmClient, SlurmNode, SlurmPartition

#: Partitions and Slurm's settings are read this often.
SETTINGS_S = 60.0


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """One reading of Slurm."""

    #: When it began (epoch): what happened later may be missing.
    began: float
    queue: Sequence[QueuedJob]
    nodes: Sequence[SlurmNode]
    partitions: Sequence[SlurmPartition]
    #: Slurm's settings; the same object until they are read again.
    settings: Mapping[str, str]

    @property
    def active(self) -> list[QueuedJob]:
        """The jobs that hold something."""
        return [job for job in self.queue if job.state != "PENDING"]

    @property
    def default_partition(self) -> str:
        """Where a job runs that names no partition; '' where Slurm has no default."""
        return next((each.name for each in self.partitions if each.is_default), "")

    @property
    def preempting(self) -> frozenset[str]:
        """Partitions whose jobs may push jobs of others aside."""
        if "partition_prio" not in self.settings.get("PreemptType", ""):
            return frozenset()
        lowest = min((each.priority_tier for each in self.partitions), default=1)
        return frozenset(each.name for each in self.partitions if each.priority_tier > lowest)


class SnapshotReader:
    """Reads one after the other, in a thread; `neighbours` are told who is about to run."""

    def __init__(
        self,
        client: SlurmClient,
        neighbours: Neighbours | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._neighbours = neighbours
        self._clock = clock
        self._partitions: list[SlurmPartition] = []
        self._settings: Mapping[str, str] = {}
        self._settings_at = float("-inf")

    def read(self) -> QueueSnapshot:
        """The next one. Raises SlurmError when Slurm does not answer."""
        began = self._clock()
        mark = self._neighbours.clock() if self._neighbours else 0.0
        # The queue first: a job that starts in between is then counted twice, never missed.
        queue = self._client.queue()
        if self._neighbours is not None:
            # Policies look at who runs where: what is decided now is about this very queue.
            self._neighbours.saw(map(about_to_run, queue), mark, starts=True)
        nodes = self._client.nodes()
        if began - self._settings_at > SETTINGS_S:
            self._partitions = self._client.partitions()
            self._settings = self._client.config()
            self._settings_at = began
        return QueueSnapshot(began, queue, nodes, self._partitions, self._settings)


class NodeKinds:
    """Which nodes are alike, and the slots of each of their sockets."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._sockets: dict[str, tuple[int, ...]] = {}

    def __call__(self, name: str) -> tuple[str, tuple[int, ...]]:
        """The kind of a node, and a mask of slots for each socket; empty where not known."""
        machine = self._machines.get(name)
        if machine is None or machine.topology is None:
            return "", ()
        kind = f"{machine.topology.shape} {machine.order}"
        if kind not in self._sockets:
            is_known = None not in machine.topology.numa
            masks = domains(machine.topology) if is_known else []
            gpus = [[i for i in range(mask.bit_length()) if mask >> i & 1] for mask in masks]
            self._sockets[kind] = tuple(mask_of(machine.to_slurm(some)) for some in gpus)
        return kind, self._sockets[kind]
