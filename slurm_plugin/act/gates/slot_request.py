"""Requests as slots: what a job asked for, what its record keeps of it, what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from slurm_plugin.base.job_notes.records import GATED, PLACED, REQUESTS, GateRecord, GpuRequests
from slurm_plugin.base.protocol import ResourceRequest, SlotsKeys, Submit
from slurm_plugin.queue.candidates import Group, Need
from slurm_plugin.queue.demand import (
    Demand,
    Unplaceable,
    demand_of,
    gpus_of,
    node_names,
    without_gpus,
)
from slurm_plugin.slurm import slot_types
from slurm_plugin.slurm.gres_text import counts
from slurm_plugin.slurm.interface import JobDefaults, JobUpdate, QueuedJob
from slurm_plugin.slurm.slot_types import index_of

_Request = TypeVar("_Request", bound=ResourceRequest)

#: Where no partition gives anything.
NO_DEFAULTS: Mapping[str, JobDefaults] = {}


def demand_of_submit(asked: Submit, default_partition: str) -> Demand:
    """What a submit asks for. Raises Unplaceable where slots cannot serve such a submit."""
    keys = asked.slots
    if keys is None:
        raise Unplaceable("GPUs per node are not known before the start")
    if keys.overcommit:
        # Slurm counts the tasks' CPUs again beside types, and never starts the job.
        raise Unplaceable("with --overcommit Slurm starts no job on slots")
    if keys.prefers:
        # Slurm refuses it where the nodes that it names do not have these features.
        raise Unplaceable("with --prefer Slurm chooses the nodes")
    return Demand(
        gpus=asked.gpus,
        per_node=asked.per_node,
        sockets=_sockets_of(asked),
        nodes=asked.nodes,
        max_nodes=asked.max_nodes,
        per_task=gpus_of(keys.tpt),
        tasks=asked.tasks,
        partitions=asked.partition or default_partition,
        is_22_05=GpuRequests(keys.tpn, keys.tpj, keys.tpt, keys.tps).is_22_05,
        **{one.name: getattr(keys, one.name) for one in fields(ResourceRequest)},
    )


def check_tasks(asked: Demand, need: Need) -> None:
    """Raises Unplaceable for a job whose CPUs by GPU are no whole number for each of its tasks.

    Beside several GPU types Slurm takes no CPUs by GPU, so they are given to it by task; it refuses
    a job with a number of CPUs that its tasks do not share evenly.
    """
    cpus = asked.cpus_per_gpu * need.gpus * need.nodes
    if cpus > asked.tasks > 1 and cpus % asked.tasks:
        raise Unplaceable(f"its {asked.tasks} tasks share the {cpus} CPUs of its GPUs unevenly")


def defaults_of(
    partitions: str,
    known: Mapping[str, JobDefaults],
    *,
    counts_cpus: bool,
    counts_memory: bool,
) -> JobDefaults:
    """What a job of these partitions is given of what counts: of the rest it says something itself.

    Raises Unplaceable where the partitions differ in it.
    """
    found = set()
    for one in filter(None, map(known.get, partitions.split(","))):
        cpus = one.cpus_per_gpu if counts_cpus else 0
        found.add(replace(one, cpus_per_gpu=cpus) if counts_memory else JobDefaults(cpus))
    if len(found) > 1:
        raise Unplaceable("its partitions differ in the CPUs or memory that they give by default")
    return found.pop() if found else JobDefaults()


def with_defaults(keys: SlotsKeys, partitions: str, known: Mapping[str, JobDefaults]) -> SlotsKeys:
    """What a submit asks for in these partitions (`_set_gpu_defaults` of cons_tres' job_test.c)."""
    defaults = defaults_of(
        partitions,
        known,
        counts_cpus=not (keys.cpus_per_gpu or keys.cpus_per_task),
        counts_memory=not keys.says_memory,
    )
    if defaults.cpus_per_gpu:
        # Beside several GPU types it gives those of one GPU, and refuses a job that asks for more.
        raise Unplaceable("the CPUs of DefCpuPerGPU are Slurm's to count")
    return _with_memory(keys, defaults)


def _with_memory(asked: _Request, defaults: JobDefaults) -> _Request:
    if asked.says_memory:
        return asked
    if defaults.mem_gpu_mb:
        return replace(asked, mem_gpu_mb=defaults.mem_gpu_mb)
    return replace(asked, mem_cpu_mb=defaults.mem_cpu_mb, mem_node_mb=defaults.mem_node_mb)


def recorded_demand(
    job: QueuedJob, kept: GateRecord, known: Mapping[str, JobDefaults] = NO_DEFAULTS
) -> Demand:
    """What a job asked for at its submit, with what its partition gives by default.

    Raises Unplaceable for a record without a GPU request.
    """
    least, most = kept.nodes
    # An older bridge did not tell a bound like -N1; a release may have set Slurm's own since.
    most = most or (0 if kept.tries or kept.state == PLACED else job.max_nodes)
    as_submitted = replace(
        job,
        **kept.requests._asdict(),
        min_nodes=least,
        max_nodes=most,
        req_nodes=kept.req_nodes,
        cpus_per_task=kept.cpus_per_task,
    )
    asked = replace(
        demand_of(as_submitted, kept.sockets_per_node),
        types=tied_to(job, kept),
        cpus_per_gpu=kept.cpus_per_gpu,
        enforce_binding=kept.binds,
    )
    says = asked.says_memory
    defaults = defaults_of(job.partition, known, counts_cpus=False, counts_memory=not says)
    return _with_memory(asked, defaults)


def tied_to(job: QueuedJob, kept: GateRecord) -> frozenset[str]:
    """The slots that a job of Slurm 22.05 is tied to once it had some; empty for any other job.

    An update there adds GRES types and never removes one: a type that is not asked for any more
    stays with a count of zero. The job starts on no node that lacks one of them.
    """
    return frozenset(slots_given(job)) if kept.requests.is_22_05 else frozenset()


def slots_given(job: QueuedJob) -> dict[str, int]:
    """The slots that the job asks for in Slurm, by index; empty where a user made it unreadable."""
    try:
        types = counts(job.tres_per_node) or counts(job.tres_per_job)
    except ValueError:
        return {}
    return {kind: i for kind in types if (i := index_of(kind)) is not None}


def nodes_given(job: QueuedJob) -> frozenset[str]:
    """The nodes that the job's request in Slurm names; empty where they cannot be read."""
    try:
        return node_names(job.req_nodes)
    except Unplaceable:
        return frozenset()


def _sockets_of(asked: Submit) -> int:
    """Sockets per node of --gpus-per-socket (which needs --sockets-per-node); 0 without."""
    keys = asked.slots
    if keys is None or keys.form != "socket":
        return 0
    each = gpus_of(keys.tps)
    return asked.per_node // each if each else 0


def record_of(
    asked: Submit, token: str, state: str = GATED, *, since: int = 0, may_borrow: bool = False
) -> GateRecord:
    """The record that a submit leaves, with its request, so that this can be given back."""
    keys = asked.slots
    assert keys is not None
    # Steps of srun and salloc take over the job's GPUs only in the form they asked in: with a
    # model by --gres that is the node's, else the whole job's.
    by = "node" if keys.batch or (keys.form == "node" and asked.type) else "job"
    values = {
        "token": token,
        **{key: getattr(keys, key) for key in REQUESTS},
        "nodes": f"{asked.nodes or 1}-{asked.max_nodes or ''}",
        "begin": keys.begin,
        "req": keys.req_nodes,
        "spn": _sockets_of(asked),
        "cpg": keys.cpus_per_gpu,
        "cpt": keys.cpus_per_task,
        "by": by,
        "bind": int(keys.enforce_binding),
        "since": since,
        "remote": int(may_borrow),
        "interactive": int(not keys.batch),
    }
    return GateRecord(state, {key: str(value) for key, value in values.items() if value})


def placed(
    kept: GateRecord, tasks: int, need: Need, group: Group, mask: int, with_lent: int = 0
) -> JobUpdate:
    """The update that gives a job of so many tasks (0: not known) these slots, but no comment.

    What it asked for with each GPU is its own for those `with_lent`, too (0: none is lent).
    """
    by = "tres_per_job" if kept.is_given_to_job else "tres_per_node"
    gres = "gres:" if kept.requests.is_22_05 else "gres/"
    count = 1 if by == "tres_per_node" else need.nodes
    slots = slot_types.request(group.gpu_types, mask, count)
    asked = kept.requests._asdict().items()
    others: dict[str, Any] = {
        name: without_gpus(text) for name, text in asked if text or name == by
    }
    wanted = ",".join(gres + item for item in slots.split(","))
    others[by] = ",".join(filter(None, (wanted, others[by])))
    # Slurm refuses CPUs per GPU beside several GPU types.
    gpus = (with_lent or need.gpus) * need.nodes
    cpus, memory_mb = kept.cpus_per_gpu * gpus, kept.memory_per_gpu_mb * with_lent
    return JobUpdate(
        **others,
        tres_bind="",
        req_nodes=",".join(group.names),
        # If fewer would do, Slurm took the nodes for some to choose from (since 23.02).
        num_nodes=(need.nodes, need.nodes),
        cpus_per_tres="" if cpus else None,
        min_cpus=cpus or None,
        cpus_per_task=cpus // tasks if cpus and tasks and cpus % tasks == 0 else None,
        memory_per_tres="" if memory_mb else None,
        memory_per_node_mb=memory_mb or None,
    )
