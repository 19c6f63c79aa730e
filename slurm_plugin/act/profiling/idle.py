"""Whether the profiler may run now: GPUs are idle, and nobody waits for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from policies.performance import Shape
from slurm_plugin.act.profiling.machine import models
from slurm_plugin.base.job_notes.hints import postponed_until
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.queue.candidates import Need, fullest
from slurm_plugin.queue.capacity import gpus_of_any_type, nodes_of
from slurm_plugin.queue.demand import Unplaceable, gpu_counts, lacks_only_room, node_names
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode

#: For so many seconds a job may be pending because Slurm has not considered it yet.
GRACE_S = 5


def has_idle_gpus(nodes: Sequence[SlurmNode], shape: Shape) -> bool:
    """Are so many nodes up with so many idle GPUs each, and a CPU at least?"""
    idle = nodes_of(nodes, (), gpus_of_any_type)
    return len(fullest(Need(shape.gpus_per_node, cpus=1), idle)) >= shape.nodes


def first_waiting(
    queue: Sequence[QueuedJob],
    nodes: Sequence[SlurmNode],
    ours: Collection[int],
    now: float,
    grace_s: float = 0.0,
) -> QueuedJob | None:
    """The job that waits for GPUs of these nodes longest, at least `grace_s`; None without."""
    waiting = [
        (since, job.job_id, job)
        for job in queue
        if job.job_id not in ours
        and (since := _since(job, now)) is not None
        and now - since >= grace_s
        and any(_may_use(job, node) for node in nodes)
    ]
    return min(waiting)[2] if waiting else None


def _since(job: QueuedJob, now: float) -> float | None:
    """Since when the job could run if it had GPUs; None where it could not."""
    if job.state != "PENDING" or job.held or job.depends:
        return None
    kept = GateRecord.read_from(job.admin_comment)
    if kept is not None or postponed_until(job.admin_comment) is not None:
        # Our own gate moves its begin time; the user's is in the bracket.
        begin = float(kept.begin) if kept else 0.0
    elif lacks_only_room(job):
        begin = float(job.eligible)
    else:
        return None
    return max(begin, float(job.submit)) if begin <= now else None


def _may_use(job: QueuedJob, node: SlurmNode) -> bool:
    """Whether the job asks for GPUs that this node has."""
    asked = gpu_counts(_asked(job))
    if not (sum(asked.values()) or job.exclusive):
        return False
    if not set(job.partition.split(",")) & set(node.partitions):
        return False
    types = set(filter(None, asked))
    if types and not types & {*models(node), *node.gpus}:
        return False
    try:
        wanted, barred = node_names(job.req_nodes), node_names(job.exc_nodes)
    except Unplaceable:
        wanted = barred = frozenset()
    return (not wanted or node.name in wanted) and node.name not in barred


def _asked(job: QueuedJob) -> str:
    """What the job asks for, and what it asked for before it was put behind a gate."""
    kept = GateRecord.read_from(job.admin_comment)
    return ",".join(filter(None, (*job.requests, *(kept.requests if kept else ()))))
