"""Which waiting jobs a plan considers (thesis Algorithm 4): seniors first, what could fit."""

from __future__ import annotations

from collections.abc import Mapping

from policies.remote.capacity import Capacities, NodeCapacity
from policies.remote.drmaestro.costs import TaskKind, holds, kind
from policies.remote.jobs import RemoteJob

#: More tasks than any machine is asked to hold.
MANY = 1_000_000


def admitted(jobs: Mapping[int, RemoteJob], left: Capacities) -> dict[int, RemoteJob]:
    """The oldest jobs, as many as the cluster could hold if it were one node (Algorithm 4).

    Of each kind of task there are no more than all machines could hold if there were no other.
    """
    cpus = sum(node.cpus for node in left.values())
    memory_mb = sum(node.memory_mb for node in left.values())
    gpus = sum(node.free.bit_count() for node in left.values())
    places: dict[TaskKind, int] = {}
    chosen = {}
    for index, job in jobs.items():
        wanted = job.request.gpus_per_node
        needs = (len(wanted) * job.cpus, len(wanted) * job.memory_mb, sum(wanted))
        if needs[0] > cpus or needs[1] > memory_mb or needs[2] > gpus:
            continue
        kinds = _counted_kinds(job)
        for need in kinds:
            if need not in places:
                places[need] = sum(_holds_at_all(node, need) for node in left.values())
        if any(places[need] < count for need, count in kinds.items()):
            continue
        for need, count in kinds.items():
            places[need] -= count
        cpus, memory_mb, gpus = cpus - needs[0], memory_mb - needs[1], gpus - needs[2]
        chosen[index] = job
    return chosen


def _counted_kinds(job: RemoteJob) -> dict[TaskKind, int]:
    counts: dict[TaskKind, int] = {}
    for task in range(len(job.request.gpus_per_node)):
        need = kind(job, task)
        counts[need] = counts.get(need, 0) + 1
    return counts


def _holds_at_all(node: NodeCapacity, need: TaskKind) -> int:
    gpus, remote = need[2], need[4]
    most = MANY if remote or not gpus else node.free.bit_count() // gpus
    return holds(node, need, most)
