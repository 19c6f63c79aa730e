"""Slurm's JSON as nouns: only the fields we need are decoded, whatever release wrote it.

scontrol, squeue, sinfo and slurmrestd print the same rows. 22.05 has bare numbers and words,
later releases {"set": .., "number": ..} and lists.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from gres_topology import hostlist
from slurm_plugin.base.job_states import queue_state
from slurm_plugin.base.rows_file import NO_JSON
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm import array_tasks, gres_text
from slurm_plugin.slurm.interface import QueuedJob, SlurmJob, SlurmNode

logger = logging.getLogger(__name__)


class _Set(msgspec.Struct):
    """A number as 23.02 and later write it."""

    number: int | float = 0
    set: bool = True


_Number = _Set | int | None
_Words = list[str] | str | None
_Text = str | None


class SlurmFault(msgspec.Struct):
    """One error of a reply."""

    description: _Text = ""
    error: _Text = ""

    def __str__(self) -> str:
        return f"{self.error or 'error'} ({self.description or 'no description'})"


class NodeRow(msgspec.Struct):
    """A node as Slurm's JSON has it."""

    name: str
    state: _Words = None
    state_flags: _Words = None
    partitions: _Words = None
    weight: _Number = 0
    cpus: _Number = 0
    #: Without those of CoreSpecCount and CPUSpecList; not on 22.05.
    effective_cpus: _Number = 0
    #: From 24.05 on, where RestrictedCoresPerGPU came.
    res_cores_per_gpu: _Number = 0
    threads: _Number = 0
    sockets: _Number = 0
    real_memory: _Number = 0
    #: MemSpecLimit; not on 22.05.
    specialized_memory: _Number = 0
    gres: _Text = ""
    gres_used: _Text = ""
    alloc_cpus: _Number = 0
    alloc_memory: _Number = 0
    active_features: _Words = None
    owner: _Text = ""
    mcs_label: _Text = ""

    def noun(self) -> SlurmNode:
        """The node; ValueError for GRES that cannot be read."""
        return SlurmNode(
            name=self.name,
            # 22.05 has the flags apart, and in lower case.
            state=tuple(word.upper() for word in (*words(self.state), *words(self.state_flags))),
            partitions=words(self.partitions),
            weight=number(self.weight),
            cpus=number(self.effective_cpus) or number(self.cpus),
            memory_mb=max(0, number(self.real_memory) - number(self.specialized_memory)),
            gpus=gres_text.counts(self.gres or ""),
            used=gres_text.indices(self.gres_used or ""),
            used_by_type=gres_text.counts(self.gres_used or ""),
            alloc_cpus=number(self.alloc_cpus),
            alloc_memory_mb=number(self.alloc_memory),
            features=words(self.active_features),
            cpus_by_gpu=number(self.res_cores_per_gpu) * max(1, number(self.threads)),
            sockets=number(self.sockets),
            is_owned=bool(self.owner or self.mcs_label),
            threads=max(1, number(self.threads)),
        )


_LEAST_NODES = re.compile(r"(?:\A|,)node=(\d{1,9})(?:,|\Z)")
#: Slurm's code for a job that its user can release.
HELD_BY_USER = "JobHeldUser"


class JobRow(msgspec.Struct):
    """A job. A field that has a name of QueuedJob is the same there, once its form is read."""

    job_id: int
    states: _Words = msgspec.field(default=None, name="job_state")
    job_name: _Text = msgspec.field(default="", name="name")
    user: _Text = msgspec.field(default="", name="user_name")
    uid: _Number = msgspec.field(default=0, name="user_id")
    account: _Text = ""
    qos: _Text = ""
    licenses: _Text = ""
    command: _Text = ""
    partition: _Text = ""
    array_id: _Number = msgspec.field(default=0, name="array_job_id")
    task_id: _Number = msgspec.field(default=None, name="array_task_id")
    waiting_tasks: _Text = msgspec.field(default="", name="array_task_string")
    throttle: _Number = msgspec.field(default=0, name="array_max_tasks")
    het_id: _Number = msgspec.field(default=0, name="het_job_id")
    het_offset: _Number = msgspec.field(default=0, name="het_job_offset")
    reason: _Text = msgspec.field(default="", name="state_reason")
    #: Slurm's own sentence, where it has one.
    told: _Text = msgspec.field(default="", name="state_description")
    priority: _Number = 0
    submit: _Number = msgspec.field(default=0, name="submit_time")
    eligible: _Number = msgspec.field(default=0, name="eligible_time")
    start: _Number = msgspec.field(default=0, name="start_time")
    end_time: _Number = msgspec.field(default=0, name="end_time")
    time_limit_min: _Number = msgspec.field(default=0, name="time_limit")
    dependency: _Text = ""
    node_list: _Text = msgspec.field(default="", name="nodes")
    min_nodes: _Number = msgspec.field(default=0, name="node_count")
    tres_asked: _Text = msgspec.field(default="", name="tres_req_str")
    max_nodes: _Number = 0
    ntasks: _Number = msgspec.field(default=0, name="tasks")
    tasks_per_node: _Number = 0
    tasks_per_gpu: _Number = msgspec.field(default=0, name="tasks_per_tres")
    cpus: _Number = 0
    cpus_per_task: _Number = 0
    cpus_per_tres: _Text = ""
    memory_per_node_mb: _Number = msgspec.field(default=0, name="memory_per_node")
    memory_per_cpu_mb: _Number = msgspec.field(default=0, name="memory_per_cpu")
    memory_per_tres: _Text = ""
    tres_per_node: _Text = ""
    tres_per_job: _Text = ""
    tres_per_task: _Text = ""
    tres_per_socket: _Text = ""
    features: _Text = ""
    req_nodes: _Text = msgspec.field(default="", name="required_nodes")
    exc_nodes: _Text = msgspec.field(default="", name="excluded_nodes")
    reservation: _Text = msgspec.field(default="", name="resv_name")
    shared: _Words = None
    cores_per_socket: _Number = 0
    sockets_per_node: _Number = 0
    threads_per_core: _Number = 0
    tasks_per_core: _Number = 0
    tasks_per_socket: _Number = 0
    contiguous: bool | None = None
    required_switches: _Number = 0
    segment_size: _Number = 0
    comment: _Text = ""
    admin_comment: _Text = ""
    gres_detail: list[str] | None = None

    def job(self) -> SlurmJob:
        """The job, finished or not."""
        states = words(self.states)
        # Until a job is over Slurm writes estimates there.
        is_over = not queue_state(states)
        return SlurmJob(
            self.job_id,
            self.job_name or "",
            states[0] if states else "",
            number(self.start) if is_over else 0,
            number(self.end_time) if is_over else 0,
        )

    def queued(self) -> QueuedJob | None:
        """The job in the queue; None for one that is finished."""
        state = queue_state(words(self.states))
        if not state:
            return None
        plain: dict[str, Any] = {name: number(getattr(self, name)) for name in _NUMBERS}
        plain |= {name: getattr(self, name) or "" for name in _TEXTS}
        if plain["reason"] == HELD_BY_USER:
            # The code of jobs that Slurm held itself, too; squeue shows the sentence in its place.
            plain["reason"] = self.told or HELD_BY_USER
        if state == "PENDING" and (least := _LEAST_NODES.search(self.tres_asked or "")):
            # The other number is what Slurm guesses that the job will have.
            plain["min_nodes"] = int(least[1])
        names, details = self._held()
        return QueuedJob(
            job_id=self.job_id,
            state=state,
            time_limit_s=60 * number(self.time_limit_min),
            exclusive="none" in words(self.shared),
            by_core=bool(number(self.cores_per_socket) or number(self.tasks_per_socket)),
            by_thread=bool(number(self.threads_per_core) or number(self.tasks_per_core)),
            together=bool(
                self.contiguous or number(self.required_switches) or number(self.segment_size)
            ),
            nodes=names,
            gpus=_indices(gres_text.indices, details),
            shared_gpus=_indices(gres_text.shared, details),
            # What Slurm writes there for a job that waits is an estimate, and not always.
            end=0 if state == "PENDING" else number(self.end_time),
            **array_tasks.fields(
                self.job_id, plain["array_id"], number(self.task_id), self.waiting_tasks or ""
            ),
            **plain,
        )

    def _held(self) -> tuple[tuple[str, ...], Sequence[tuple[str, str]]]:
        """The job's nodes, and of those with GRES what it has there."""
        names = hostlist.expand(self.node_list) if self.node_list else ()
        # One gres_detail entry per allocated node, in the order of the nodes.
        return names, [*zip(names, self.gres_detail or (), strict=False)]


def _indices(
    read: Callable[[str], tuple[int, ...]], details: Sequence[tuple[str, str]]
) -> Mapping[str, tuple[int, ...]]:
    """What is read of each node's text, where it is anything."""
    return {name: gpus for name, detail in details if (gpus := read(detail))}


# JobRow's fields that are the same in QueuedJob.
_SAME = set(QueuedJob.__dataclass_fields__) & set(JobRow.__struct_fields__) - {"job_id"}
_TEXTS = {name for name in _SAME if getattr(JobRow(0), name) == ""}
_NUMBERS = _SAME - _TEXTS


class Nodes(msgspec.Struct):
    """A reply about nodes."""

    nodes: list[NodeRow]
    last_update: _Number = None
    errors: list[SlurmFault] = []


class Jobs(msgspec.Struct):
    """A reply about jobs."""

    jobs: list[JobRow]
    last_update: _Number = None
    errors: list[SlurmFault] = []


_Reply = TypeVar("_Reply", Nodes, Jobs)


def decode(text: str | bytes, kind: type[_Reply], shown: str) -> _Reply:
    """A reply; SlurmError that names the command or path `shown` if it is not what Slurm says."""
    try:
        reply = msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        key = kind.__struct_fields__[0]
        if f"$.{key}[" in str(error):
            problem = f"an entry of {key!r} cannot be read: {error}"
        else:
            problem = f"no list {key!r} in the reply: {error}"
        raise SlurmError(f"{shown}: {problem}") from error
    except NO_JSON as error:
        raise SlurmError(f"{shown}: the reply is not JSON: {error}") from error
    # 22.05's commands exit 0 whatever went wrong.
    if reply.errors:
        problem = "; ".join(map(str, reply.errors[:3]))
        raise SlurmError(f"{shown}: {problem}; is slurmctld up?")
    # 24.11's `scontrol show jobs --json` prints an empty list and exits 0 when slurmctld is down,
    # which must not pass for an empty queue. What it tells of one job alone never has a date.
    is_empty = not getattr(reply, kind.__struct_fields__[0])
    if is_empty and reply.last_update is not None and number(reply.last_update) == 0:
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
    return sorted((row.job() for row in decode(text, Jobs, shown).jobs), key=lambda j: j.job_id)


def queue(text: str | bytes, shown: str) -> list[QueuedJob]:
    """Every job of a reply that waits or holds resources, by id.

    A job that cannot be read (its list of array tasks is cut short, say) is left out and logged.
    """
    jobs_in_queue = []
    for row in decode(text, Jobs, shown).jobs:
        try:
            job = row.queued()
        except ValueError as error:
            _left_out(row.job_id, f"{shown}: job {row.job_id} is left out: {error}")
            continue
        if job is not None:
            jobs_in_queue.append(job)
    return sorted(jobs_in_queue, key=lambda job: job.job_id)


@lru_cache(1024)
def _left_out(job_id: int, text: str) -> None:
    logger.warning(text)


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
