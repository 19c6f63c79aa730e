"""Slurm's JSON as nouns: only the fields we need are decoded, whatever release wrote it.

scontrol, squeue, sinfo and slurmrestd print the same rows. 22.05 has bare numbers and words,
later releases {"set": .., "number": ..} and lists.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from gres_topology import hostlist
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm import array_tasks, gres_text
from slurm_plugin.slurm.interface import QueuedJob, SlurmJob, SlurmNode

logger = logging.getLogger(__name__)

#: The states in which a job waits or holds resources; a finished one is none of the queue.
QUEUE_STATES = ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING")


class _Set(msgspec.Struct):
    """A number as 23.02 and later write it."""

    number: int | float = 0
    set: bool = True


_Number = _Set | int | None
_Words = list[str] | str | None
_Text = str | None


class Fault(msgspec.Struct):
    """One error of a reply."""

    description: _Text = ""
    error: _Text = ""
    error_number: int = 0

    def __str__(self) -> str:
        return f"{self.error or 'error'} ({self.description or 'no description'})"


class NodeRow(msgspec.Struct):
    """A node."""

    name: str
    state: _Words = None
    state_flags: _Words = None
    partitions: _Words = None
    weight: _Number = 0
    cpus: _Number = 0
    real_memory: _Number = 0
    gres: _Text = ""
    gres_used: _Text = ""
    alloc_cpus: _Number = 0
    alloc_memory: _Number = 0
    active_features: _Words = None

    def noun(self) -> SlurmNode:
        """The node; ValueError for GRES that cannot be read."""
        return SlurmNode(
            name=self.name,
            # 22.05 has the flags apart, and in lower case.
            state=tuple(word.upper() for word in (*words(self.state), *words(self.state_flags))),
            partitions=words(self.partitions),
            weight=number(self.weight),
            cpus=number(self.cpus),
            memory_mb=number(self.real_memory),
            gpus=gres_text.counts(self.gres or ""),
            used=gres_text.indices(self.gres_used or ""),
            used_by_type=gres_text.counts(self.gres_used or ""),
            alloc_cpus=number(self.alloc_cpus),
            alloc_memory_mb=number(self.alloc_memory),
            features=words(self.active_features),
        )


class JobRow(msgspec.Struct):
    """A job, finished or not."""

    job_id: int
    job_state: _Words = None
    array_job_id: _Number = 0
    name: _Text = ""
    user_name: _Text = ""
    partition: _Text = ""
    nodes: _Text = ""
    gres_detail: list[str] | None = None
    comment: _Text = ""
    admin_comment: _Text = ""
    start_time: _Number = 0
    end_time: _Number = 0

    def noun(self) -> SlurmJob:
        """The job."""
        state = words(self.job_state)
        # Until then Slurm writes estimates there.
        is_over = not queue_state(state)
        names, gpus = _held(self.nodes, self.gres_detail)
        return SlurmJob(
            job_id=self.job_id,
            array_id=number(self.array_job_id),
            name=self.name or "",
            user=self.user_name or "",
            partition=self.partition or "",
            state=state[0] if state else "",
            nodes=names,
            gpus=gpus,
            comment=self.comment or "",
            admin_comment=self.admin_comment or "",
            start=number(self.start_time) if is_over else 0,
            end=number(self.end_time) if is_over else 0,
        )


class QueueRow(msgspec.Struct):
    """A job of which the queue's fields are wanted."""

    job_id: int
    job_state: _Words = None
    array_job_id: _Number = 0
    array_task_id: _Number = None
    array_task_string: _Text = ""
    array_max_tasks: _Number = 0
    het_job_id: _Number = 0
    het_job_offset: _Number = 0
    user_name: _Text = ""
    user_id: int = 0
    account: _Text = ""
    partition: _Text = ""
    state_reason: _Text = ""
    priority: _Number = 0
    submit_time: _Number = 0
    eligible_time: _Number = 0
    start_time: _Number = 0
    end_time: _Number = 0
    time_limit: _Number = 0
    dependency: _Text = ""
    nodes: _Text = ""
    node_count: _Number = 0
    max_nodes: _Number = 0
    tasks: _Number = 0
    cpus: _Number = 0
    cpus_per_task: _Number = 0
    cpus_per_tres: _Text = ""
    memory_per_node: _Number = 0
    memory_per_cpu: _Number = 0
    memory_per_tres: _Text = ""
    minimum_cpus_per_node: _Number = 0
    tres_per_node: _Text = ""
    tres_per_job: _Text = ""
    tres_per_task: _Text = ""
    tres_per_socket: _Text = ""
    features: _Text = ""
    required_nodes: _Text = ""
    excluded_nodes: _Text = ""
    resv_name: _Text = ""
    shared: _Words = None
    comment: _Text = ""
    admin_comment: _Text = ""
    gres_detail: list[str] | None = None

    def noun(self) -> QueuedJob | None:
        """The job; None for one that is finished."""
        state = queue_state(words(self.job_state))
        if not state:
            return None
        array_id, task_id = number(self.array_job_id), number(self.array_task_id)
        together = array_tasks.task_runs(self.array_task_string or "")
        # A task by itself has a number, and 0 is one.
        single = bool(array_id) and not together
        names, gpus = _held(self.nodes, self.gres_detail)
        return QueuedJob(
            job_id=self.job_id,
            name=array_tasks.update_name(
                self.job_id, array_id, task_id if single else None, together
            ),
            array_id=array_id,
            task=str(task_id) if single else array_tasks.ranges(together),
            tasks=sum(map(len, together)) or 1,
            state=state,
            time_limit_s=60 * number(self.time_limit),
            depends=bool(self.dependency),
            exclusive="none" in words(self.shared),
            nodes=names,
            gpus=gpus,
            # What Slurm writes there for a job that waits is an estimate, and not always.
            end=0 if state == "PENDING" else number(self.end_time),
            **self._same(),
        )

    def _same(self) -> dict[str, Any]:
        """The fields that are the same here and in QueuedJob, under its names."""
        found: dict[str, Any] = {noun: number(getattr(self, own)) for noun, own in _NUMBERS}
        return found | {noun: getattr(self, own) or "" for noun, own in _TEXTS}


# QueuedJob's field and the row's, where one is the other.
_NUMBERS = (
    ("throttle", "array_max_tasks"),
    ("het_id", "het_job_id"),
    ("het_offset", "het_job_offset"),
    ("uid", "user_id"),
    ("priority", "priority"),
    ("submit", "submit_time"),
    ("eligible", "eligible_time"),
    ("start", "start_time"),
    ("min_nodes", "node_count"),
    ("max_nodes", "max_nodes"),
    ("ntasks", "tasks"),
    ("cpus", "cpus"),
    ("cpus_per_task", "cpus_per_task"),
    ("memory_per_node_mb", "memory_per_node"),
    ("memory_per_cpu_mb", "memory_per_cpu"),
    ("min_cpus_per_node", "minimum_cpus_per_node"),
)
_TEXTS = (
    ("user", "user_name"),
    ("account", "account"),
    ("partition", "partition"),
    ("reason", "state_reason"),
    ("cpus_per_tres", "cpus_per_tres"),
    ("memory_per_tres", "memory_per_tres"),
    ("tres_per_node", "tres_per_node"),
    ("tres_per_job", "tres_per_job"),
    ("tres_per_task", "tres_per_task"),
    ("tres_per_socket", "tres_per_socket"),
    ("features", "features"),
    ("req_nodes", "required_nodes"),
    ("exc_nodes", "excluded_nodes"),
    ("reservation", "resv_name"),
    ("comment", "comment"),
    ("admin_comment", "admin_comment"),
)


class Nodes(msgspec.Struct):
    """A reply about nodes."""

    nodes: list[NodeRow]
    last_update: _Number = None
    errors: list[Fault] = []


class Jobs(msgspec.Struct):
    """A reply about jobs."""

    jobs: list[JobRow]
    last_update: _Number = None
    errors: list[Fault] = []


class Queue(msgspec.Struct):
    """A reply about jobs, read for the queue."""

    jobs: list[QueueRow]
    last_update: _Number = None
    errors: list[Fault] = []


_Reply = TypeVar("_Reply", Nodes, Jobs, Queue)


def decode(text: str | bytes, kind: type[_Reply], shown: str) -> _Reply:
    """A reply; SlurmError that names the command or path `shown` if it is not what Slurm says."""
    try:
        reply = msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        key = kind.__struct_fields__[0]
        if f"$.{key}[" in str(error):
            told = f"an entry of {key!r} cannot be read: {error}"
        else:
            told = f"no list {key!r} in the reply: {error}"
        raise SlurmError(f"{shown}: {told}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SlurmError(f"{shown}: the reply is not JSON: {error}") from error
    # 22.05's commands exit 0 whatever went wrong.
    if reply.errors:
        told = "; ".join(map(str, reply.errors[:3]))
        raise SlurmError(f"{shown}: {told}; is slurmctld up?")
    # 24.11's `scontrol show jobs --json` prints an empty list, no error and exits 0 when
    # slurmctld is down. Mistaken for an empty queue, that would be a disaster.
    if reply.last_update is not None and number(reply.last_update) == 0:
        raise SlurmError(f"{shown}: an empty reply of no date; is slurmctld up?")
    return reply


def nodes(text: str | bytes, shown: str) -> list[SlurmNode]:
    """Every node of a reply, by name."""
    reply = decode(text, Nodes, shown)
    try:
        return sorted((row.noun() for row in reply.nodes), key=lambda node: node.name)
    except ValueError as error:
        raise SlurmError(f"{shown}: an entry of 'nodes' cannot be read: {error}") from error


def jobs(text: str | bytes, shown: str) -> list[SlurmJob]:
    """Every job of a reply, by id."""
    reply = decode(text, Jobs, shown)
    try:
        return sorted((row.noun() for row in reply.jobs), key=lambda job: job.job_id)
    except ValueError as error:
        raise SlurmError(f"{shown}: an entry of 'jobs' cannot be read: {error}") from error


def queue(text: str | bytes, shown: str) -> list[QueuedJob]:
    """Every job of a reply that waits or holds resources, by id.

    A job that cannot be read (a list of array tasks cut short, say) is left out, and said once.
    """
    found = []
    for row in decode(text, Queue, shown).jobs:
        try:
            job = row.noun()
        except ValueError as error:
            _left_out(row.job_id, f"{shown}: job {row.job_id} is left out: {error}")
            continue
        if job is not None:
            found.append(job)
    return sorted(found, key=lambda job: job.job_id)


@lru_cache(1024)
def _left_out(job_id: int, told: str) -> None:
    logger.warning(told)


def number(value: _Number) -> int:
    """A number of any release; 0 when unset (and for Slurm's infinite)."""
    if type(value) is _Set:
        return int(value.number) if value.set else 0
    return int(value) if value else 0  # type: ignore[arg-type]


def words(value: _Words) -> tuple[str, ...]:
    """A state or list of any release as its words."""
    if isinstance(value, str):
        return tuple(word for word in re.split(r"[,+]", value) if word)
    return tuple(value or ())


def queue_state(state: tuple[str, ...]) -> str:
    """The one word of QUEUE_STATES for a state and its flags; '' for a job that is over."""
    for word in ("COMPLETING", "CONFIGURING"):
        if word in state:
            return word
    base = state[0] if state else ""
    if base in ("STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT"):
        return "RUNNING"
    # A requeued job waits again; 22.05 shows the flag in place of the state.
    if base in ("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"):
        return "PENDING"
    return base if base in QUEUE_STATES else ""


def _held(
    text: str | None, details: list[str] | None
) -> tuple[tuple[str, ...], Mapping[str, tuple[int, ...]]]:
    """The job's nodes and, of those with GPUs, their indices."""
    names = hostlist.expand(text) if text else ()
    gpus: dict[str, tuple[int, ...]] = {}
    # One gres_detail entry per allocated node, in the order of `nodes`.
    for name, detail in zip(names, details or (), strict=False):
        indices = gres_text.indices(detail)
        if indices:
            gpus[name] = indices
    return names, gpus
