"""The narrow interface to Slurm, and the nouns it answers with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

#: What `JobUpdate.begin_time` holds to say: as soon as Slurm can.
NOW = 0


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node as Slurm knows it; GPU counts by type ('' = untyped), `used` by Slurm index.

    `used_by_type` counts what is in use of each type, 0 included. `alloc_cpus` and
    `alloc_memory_mb` are what running jobs hold; `features` are the active ones.
    """

    name: str
    state: tuple[str, ...]
    partitions: tuple[str, ...]
    weight: int
    cpus: int
    memory_mb: int
    gpus: Mapping[str, int] = field(default_factory=dict)
    used: tuple[int, ...] = ()
    used_by_type: Mapping[str, int] = field(default_factory=dict)
    alloc_cpus: int = 0
    alloc_memory_mb: int = 0
    features: tuple[str, ...] = ()

    @property
    def gpu_count(self) -> int:
        """GPUs of every type together."""
        return sum(self.gpus.values())


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job; `gpus` maps its nodes to Slurm's GPU indices while it runs.

    `start` and `end` are epochs in seconds, 0 until the job is over.
    """

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
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """One job that waits or holds resources: everything a scheduler must know of it.

    Times are epochs in seconds, 0 where Slurm has none yet; a job that waits has no `end`. A
    field of Slurm that is unset is 0, '' or (): `time_limit_s` 0 is no limit, `max_nodes` 0 no
    upper bound, `throttle` 0 no `%N`. The tres texts are Slurm's own: `gres/gpu:v100:2`, on
    22.05 `gres:gpu:v100:2`, and per task on 24.11 and later `cpu=1,gres/gpu:v100=2`.
    `state` is PENDING, RUNNING, SUSPENDED, CONFIGURING or COMPLETING (whatever else Slurm adds
    to it). `gpus` maps nodes to Slurm's GPU indices while the job holds them.

    The tasks of an array that wait are one job: `task` is their text (`2-9`), `tasks` their
    number, `array_id` the array. A task by itself has `task` `1`, `tasks` 1. `name` is what an
    update calls the job: `7`, `4_1`, or for tasks that wait together `4_[2-9]`.
    """

    job_id: int
    name: str = ""
    array_id: int = 0
    task: str = ""
    tasks: int = 1
    throttle: int = 0
    het_id: int = 0
    het_offset: int = 0
    user: str = ""
    uid: int = 0
    account: str = ""
    partition: str = ""
    state: str = ""
    reason: str = ""
    priority: int = 0
    submit: int = 0
    eligible: int = 0
    start: int = 0
    end: int = 0
    time_limit_s: int = 0
    depends: bool = False
    nodes: tuple[str, ...] = ()
    min_nodes: int = 0
    max_nodes: int = 0
    ntasks: int = 0
    cpus: int = 0
    cpus_per_task: int = 0
    cpus_per_tres: str = ""
    memory_per_node_mb: int = 0
    memory_per_cpu_mb: int = 0
    memory_per_tres: str = ""
    min_cpus_per_node: int = 0
    tres_per_node: str = ""
    tres_per_job: str = ""
    tres_per_task: str = ""
    tres_per_socket: str = ""
    features: str = ""
    req_nodes: str = ""
    exc_nodes: str = ""
    reservation: str = ""
    exclusive: bool = False
    comment: str = ""
    admin_comment: str = ""
    gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        """Held by somebody (priority 0): no time will start it."""
        return self.priority == 0 and self.state == "PENDING"


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """What to change of pending jobs: None leaves a field alone, '' clears it.

    `begin_time` is an epoch, NOW = at once. `num_nodes` is (min, max). `site_factor` is the site's
    part of the priority, around 0; `priority` is a fixed one, until `is_released`, which also lets
    a held job go. The tres texts may be written as any release writes them: `gpu:s1:1`,
    `gres/gpu:s1:1` or `gres:gpu:s1:1`.
    """

    begin_time: int | None = None
    tres_per_node: str | None = None
    tres_per_job: str | None = None
    tres_per_task: str | None = None
    tres_per_socket: str | None = None
    tres_bind: str | None = None
    req_nodes: str | None = None
    exc_nodes: str | None = None
    features: str | None = None
    num_nodes: tuple[int, int] | None = None
    min_cpus: int | None = None
    cpus_per_task: int | None = None
    min_cpus_per_node: int | None = None
    cpus_per_tres: str | None = None
    memory_per_node_mb: int | None = None
    memory_per_cpu_mb: int | None = None
    memory_per_tres: str | None = None
    admin_comment: str | None = None
    num_tasks: int | None = None
    site_factor: int | None = None
    priority: int | None = None
    is_released: bool | None = None


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """A partition and the nodes in it."""

    name: str
    nodes: tuple[str, ...]
    is_default: bool
    priority_tier: int = 1


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

    def queue(self) -> list[QueuedJob]:
        """Every job that is pending, running, suspended, configuring or completing, by id."""
        ...

    def update(self, jobs: Sequence[str], change: JobUpdate) -> None:
        """Change the jobs, each called by its QueuedJob's `name`, or `4_1` for a task.

        Raises SlurmError with Slurm's words; jobs named beside a refused one may have changed,
        so what matters must be read again.
        """
        ...

    def config(self) -> Mapping[str, str]:
        """`scontrol show config` as key and text."""
        ...

    def partitions(self) -> list[SlurmPartition]:
        """Every partition, by name."""
        ...
