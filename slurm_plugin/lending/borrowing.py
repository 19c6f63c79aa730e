"""Between the queue and the choice of donors: which jobs may borrow, and what a loan holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from policies.remote.r_queue import Release
from slurm_plugin.job_notes.records import JobRecord
from slurm_plugin.lending.choice.offer import Borrower, SpareCapacity
from slurm_plugin.queue.candidates import Need, may_use
from slurm_plugin.queue.capacity import Hold, Nodes
from slurm_plugin.queue.demand import Demand
from slurm_plugin.slurm.interface import QueuedJob

#: No network of any node is used.
NO_LOADS: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A waiting job that fits on no node now, and that could perhaps borrow."""

    job: QueuedJob
    record: JobRecord
    demand: Demand
    need: Need


def may_borrow(asked: Demand) -> bool:
    """Can a job that asks for this borrow? Only of one node, its GPUs counted per node or in all.

    Others ask Slurm for GPUs in ways that their steps repeat, or get them on several nodes. That
    it is a batch job, and part of no array or heterogeneous job, is for the caller to know.
    """
    return (
        asked.form in ("node", "job")
        and not (asked.exclusive or asked.req_nodes or asked.is_22_05)
        and not (asked.cpus_per_gpu or asked.mem_gpu_mb)
        and asked.nodes <= 1
        and asked.max_nodes <= 1
        and (asked.per_node if asked.form == "node" else asked.gpus) >= 2
    )


def borrower(need: Need, nodes: Nodes) -> Borrower:
    """The job behind a need, with the nodes that it may use."""
    one = replace(need, gpus=1)
    usable = (name for name, node in nodes.items() if node.gpu_types and may_use(one, node))
    return Borrower(need.gpus, need.cpus, need.memory_mb, frozenset(usable))


def spare_capacity(
    nodes: Nodes, releases: Sequence[Release] = (), loads: Mapping[str, float] = NO_LOADS
) -> SpareCapacity:
    """What the open nodes have left."""
    lending = {n: node for n, node in nodes.items() if node.is_open and node.gpu_types}
    return SpareCapacity(lending, releases, loads)


def releases(holds: Iterable[Hold], now: float) -> list[Release]:
    """What is given back when, by the jobs' time limits; a job without one never ends."""
    return [
        Release(
            max(0.0, hold.end - now),
            hold.gpus,
            dict.fromkeys(hold.gpus, hold.cpus),
            dict.fromkeys(hold.gpus, hold.memory_mb),
        )
        for hold in holds
        if hold.end < math.inf
    ]


def gpus_of(holds: Sequence[Hold]) -> list[tuple[str, int]]:
    """Node and mask of everything held."""
    return [pair for hold in holds for pair in hold.gpus.items()]
