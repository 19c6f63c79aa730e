"""The narrow interface to Slurm, and the nouns it answers with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node as Slurm knows it; GPU counts by type ('' = untyped), `used` by Slurm index."""

    name: str
    state: tuple[str, ...]
    partitions: tuple[str, ...]
    weight: int
    cpus: int
    memory_mb: int
    gpus: Mapping[str, int] = field(default_factory=dict)
    used: tuple[int, ...] = ()

    @property
    def gpu_count(self) -> int:
        """GPUs of every type together."""
        return sum(self.gpus.values())


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job; `gpus` maps its nodes to Slurm's GPU indices while it runs."""

    job_id: int
    array_id: int
    name: str
    user: str
    partition: str
    state: str
    nodes: tuple[str, ...] = ()
    gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    comment: str = ""
    admin_comment: str = ""


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """A partition and the nodes in it."""

    name: str
    nodes: tuple[str, ...]
    is_default: bool


class SlurmClient(Protocol):
    """Everything we ask of Slurm. Each call raises SlurmError when Slurm does not answer."""

    def version(self) -> str:
        """The controller's release, such as `24.11.5`."""
        ...

    def nodes(self) -> list[SlurmNode]:
        """Every node, by name."""
        ...

    def jobs(self) -> list[SlurmJob]:
        """Every job the controller still holds, by id."""
        ...

    def job(self, job_id: int) -> SlurmJob | None:
        """One job, or None when the controller no longer holds it."""
        ...

    def config(self) -> Mapping[str, str]:
        """`scontrol show config` as key and text."""
        ...

    def partitions(self) -> list[SlurmPartition]:
        """Every partition, by name."""
        ...
