"""A SlurmClient over PySlurm, the optional extra: Slurm's own library, no process to read with.

PySlurm is imported late: without a slurm.conf its import ends the process. squeue says what it does
not (requests per job, task and socket), scontrol does what its `modify` cannot (clear a field, name
array tasks).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gres_topology import hostlist
from gres_topology.cpulist import parse_list
from slurm_plugin.base.job_states import queue_state
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm import array_tasks
from slurm_plugin.slurm.clients import squeue_table
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob, SlurmJob, SlurmNode
from slurm_plugin.slurm.runner import Runner

# JobUpdate's field and PySlurm's, where its `modify` sets it as it is.
_MODIFIES = {
    "begin_time": "begin_time",
    "req_nodes": "required_nodes",
    "exc_nodes": "excluded_nodes",
    "features": "constraints",
    "admin_comment": "admin_comment",
}
# The columns of squeue for what PySlurm does not say, after the job's id.
_ASKED = {
    "tres_per_node": "tres-per-node",
    "tres_per_job": "tres-per-job",
    "tres_per_task": "tres-per-task",
    "tres_per_socket": "tres-per-socket",
    "cpus_per_tres": "cpus-per-tres",
    "memory_per_tres": "mem-per-tres",
    "features": "Feature",
}
_CONF = "/etc/slurm/slurm.conf"


def check() -> None:
    """SlurmError where PySlurm is not installed or cannot work here; imports nothing."""
    conf = os.environ.get("SLURM_CONF", _CONF)
    if not Path(conf).exists():
        raise SlurmError(
            f"slurm.client is pyslurm, which needs {conf} on this host; put it there or set"
            " slurm.client: command"
        )
    if importlib.util.find_spec("pyslurm") is None:
        raise SlurmError(
            "slurm.client is pyslurm, but the package pyslurm is not installed for"
            f" {sys.executable}; install the PySlurm of this Slurm release or set"
            " slurm.client: command"
        )


def load() -> Any:
    """The module pyslurm; SlurmError where it is not installed or cannot work here."""
    check()
    try:
        return importlib.import_module("pyslurm")
    except ImportError as error:
        raise SlurmError(
            f"slurm.client is pyslurm, which cannot be imported ({error}); install the PySlurm of"
            " this Slurm release or set slurm.client: command"
        ) from error


class PySlurm(SlurmClient):
    """A SlurmClient over the module pyslurm; `run` is for what it cannot do."""

    def __init__(self, run: Runner) -> None:
        super().__init__(run)
        self._pyslurm = load()

    def nodes(self) -> list[SlurmNode]:
        """Every node, by name; what is in use comes from the jobs that hold it."""
        used = _used(_layout(job) for job in self._load("Jobs").values())
        nodes = [_node(node, used.get(node.name, {})) for node in self._load("Nodes").values()]
        return sorted(nodes, key=lambda node: node.name)

    def jobs(self) -> list[SlurmJob]:
        """Every job the controller holds, by id."""
        jobs = [_job(job) for job in self._load("Jobs").values()]
        return sorted(jobs, key=lambda job: job.job_id)

    def queue(self) -> list[QueuedJob]:
        """Every job that waits or holds resources, by id."""
        columns = ["JobId", "cpus-per-task", *_ASKED.values()]
        asked: dict[int, dict[str, Any]] = {}
        for job_id, cpus, *texts in squeue_table.read(self._run, columns):
            asked[int(job_id)] = dict(zip(_ASKED, texts, strict=True)) | {
                "cpus_per_task": int(cpus or 0)
            }
        jobs = []
        for job in self._load("Jobs").values():
            state = queue_state((job.state or "",))
            # One that came or went between the two questions is in the next answer.
            if state and job.id in asked:
                jobs.append(_queued(job, state, asked[job.id]))
        return sorted(jobs, key=lambda job: job.job_id)

    def update(self, jobs: Sequence[str], change: JobUpdate) -> None:
        """`Job.modify` where it can, `scontrol update` for the rest."""
        wanted = {
            name: value for name in change.__slots__ if (value := getattr(change, name)) is not None
        }
        is_plain = all(name in _MODIFIES and value for name, value in wanted.items())
        if not is_plain or not all(job.isdecimal() for job in jobs):
            super().update(jobs, change)
            return
        description = self._pyslurm.JobSubmitDescription(
            **{_MODIFIES[name]: value for name, value in wanted.items()}
        )
        refused = []
        for job in jobs:
            try:
                self._pyslurm.Job(int(job)).modify(description)
            except self._pyslurm.PyslurmError as error:
                refused.append(f"update of job {job}: {error}")
        if refused:
            raise SlurmError(f"PySlurm: {'; '.join(refused[:3])}")

    def _load(self, what: str) -> Any:
        """`pyslurm.WHAT.load()`; SlurmError with its words."""
        try:
            return getattr(self._pyslurm, what).load()
        except self._pyslurm.PyslurmError as error:
            raise SlurmError(f"PySlurm: {what}: {error}; is slurmctld up?") from error


_Layout = Mapping[str, Mapping[str, tuple[int, ...]]]


def _layout(job: Any) -> _Layout:
    """The GPU indices a job holds: node -> type ('' = untyped) -> indices."""
    try:
        layouts = job.get_resource_layout_per_node() or {}
    except ValueError as error:
        # It cannot read GRES without a type, `gpu:(null):4(IDX:0-3)`.
        raise SlurmError(
            f"PySlurm: the GPUs of job {job.id} cannot be read ({error}); give GPUs a Type= in"
            " gres.conf or set slurm.client: command"
        ) from error
    gpus: dict[str, dict[str, tuple[int, ...]]] = {}
    for node, layout in layouts.items():
        for name, held in (layout.get("gres") or {}).items():
            kind, _, model = name.partition(":")
            indices = held.get("indexes") if isinstance(held, dict) else None
            if kind == "gpu" and indices and indices != "N/A":
                gpus.setdefault(node, {})[model] = parse_list(indices)
    return gpus


def _used(layouts: Iterable[_Layout]) -> dict[str, dict[str, tuple[int, ...]]]:
    """The layouts of all jobs together."""
    used: dict[str, dict[str, tuple[int, ...]]] = {}
    for layout in layouts:
        for node, types in layout.items():
            for model, indices in types.items():
                of_node = used.setdefault(node, {})
                of_node[model] = of_node.get(model, ()) + indices
    return used


def _gpus(layout: _Layout) -> dict[str, tuple[int, ...]]:
    return {
        node: tuple(sorted(index for indices in types.values() for index in indices))
        for node, types in layout.items()
    }


def _node(node: Any, used: Mapping[str, tuple[int, ...]]) -> SlurmNode:
    gpus = {
        model: count
        for name, count in (node.configured_gres or {}).items()
        for kind, _, model in [name.partition(":")]
        if kind == "gpu"
    }
    return SlurmNode(
        name=node.name,
        state=tuple(word.upper() for word in (node.state or "").split("+")),
        partitions=tuple(node.partitions or ()),
        weight=node.weight or 0,
        cpus=node.effective_cpus or node.total_cpus or 0,
        memory_mb=node.real_memory or 0,
        gpus=gpus,
        used=tuple(sorted(index for indices in used.values() for index in indices)),
        used_by_type={model: len(used.get(model, ())) for model in {**gpus, **used}},
        alloc_cpus=node.allocated_cpus or 0,
        alloc_memory_mb=node.allocated_memory or 0,
        features=tuple(node.active_features or ()),
        sockets=node.sockets or 0,
        is_owned=bool(getattr(node, "owner", None) or getattr(node, "mcs_label", None)),
        threads=getattr(node, "threads_per_core", None) or 1,
    )


def _job(job: Any) -> SlurmJob:
    # Until the job is over Slurm writes estimates there.
    is_over = not queue_state((job.state or "",))
    return SlurmJob(
        job.id,
        job.name or "",
        job.state or "",
        _count(job.start_time) if is_over else 0,
        _count(job.end_time) if is_over else 0,
    )


# QueuedJob's field and PySlurm's, where they say the same.
_NUMBERS = {
    "array_id": "array_id",
    "throttle": "array_tasks_parallel",
    "het_id": "heterogeneous_id",
    "het_offset": "heterogeneous_offset",
    "uid": "user_id",
    "priority": "priority",
    "submit": "submit_time",
    "eligible": "eligible_time",
    "start": "start_time",
    "min_nodes": "num_nodes",
    "max_nodes": "max_nodes",
    "ntasks": "ntasks",
    "cpus": "cpus",
    "memory_per_node_mb": "memory_per_node",
    "memory_per_cpu_mb": "memory_per_cpu",
}
_TEXTS = {
    "user": "user_name",
    "account": "account",
    "qos": "qos",
    "job_name": "name",
    "command": "command",
    "partition": "partition",
    "req_nodes": "required_nodes",
    "exc_nodes": "excluded_nodes",
    "reservation": "reservation",
    "comment": "comment",
    "admin_comment": "admin_comment",
}


def _queued(job: Any, state: str, asked: Mapping[str, Any]) -> QueuedJob:
    plain: dict[str, Any] = {name: _count(getattr(job, own)) for name, own in _NUMBERS.items()}
    plain |= {name: getattr(job, own) or "" for name, own in _TEXTS.items()}
    return QueuedJob(
        job_id=job.id,
        state=state,
        # PySlurm gives the description, `Reason, what of it`, where there is one.
        reason=(job.state_reason or "").partition(",")[0],
        end=0 if job.state == "PENDING" else _count(job.end_time),
        time_limit_s=60 * _count(job.time_limit),
        dependency=_dependency(job.dependencies or {}),
        licenses=",".join(f"{name}:{count}" for name, count in (job.licenses or {}).items()),
        nodes=hostlist.expand(job.allocated_nodes) if job.allocated_nodes else (),
        exclusive=job.resource_sharing in ("no", "NO"),
        # It does not say.
        tasks_per_gpu=-1,
        gpus=_gpus(_layout(job)),
        **array_tasks.fields(
            job.id, plain["array_id"], _count(job.array_task_id), job.array_tasks_waiting or ""
        ),
        **plain,
        **asked,
    )


def _dependency(waits_for: Mapping[str, Any]) -> str:
    """In Slurm's words: PySlurm has {kind: jobs, singleton: bool, satisfy: all or any}."""
    found = [
        f"{kind}:{one}(unfulfilled)"
        for kind, jobs in waits_for.items()
        if isinstance(jobs, list)
        for one in jobs
    ]
    if waits_for.get("singleton"):
        found.append("singleton(unfulfilled)")
    return ("?" if waits_for.get("satisfy") == "any" else ",").join(found)


def _count(value: Any) -> int:
    """A number; 0 for None and for PySlurm's UNLIMITED."""
    return value if isinstance(value, int) else 0
