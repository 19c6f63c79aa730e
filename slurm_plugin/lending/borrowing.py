"""Between the queue and the choice of donors: who may borrow, of which nodes, what a loan holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from policies.r_queue import Release
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.job_notes.records import JobRecord
from slurm_plugin.lending.offer import Borrower, Market, Offer, Spare
from slurm_plugin.queue.candidates import Need, may_use
from slurm_plugin.queue.capacity import Hold, Nodes
from slurm_plugin.queue.demand import Demand
from slurm_plugin.slurm.interface import QueuedJob


@dataclass(frozen=True, slots=True)
class Candidate:
    """A waiting job that fits on no node now, and that could perhaps borrow."""

    job: QueuedJob
    #: Our record in its AdminComment.
    kept: JobRecord
    demand: Demand
    need: Need


@dataclass(frozen=True, slots=True)
class Offered:
    """An offer and all that it takes, the job's own share first."""

    offer: Offer
    holds: tuple[Hold, ...]


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
    usable = frozenset(
        name for name, node in nodes.items() if node.gpu_types and may_use(one, node)
    )
    return Borrower(need.gpus, need.cpus, need.memory_mb, usable)


def market(nodes: Nodes, releases: Sequence[Release] = ()) -> Market:
    """What the open nodes have left."""
    spares = {
        name: Spare(
            name,
            node.free,
            node.cpus,
            node.memory_mb,
            node.model,
            node.jobs,
        )
        for name, node in nodes.items()
        if node.is_open and node.gpu_types
    }
    return Market(spares, releases)


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


def holds(found: Offer, need: Need, settings: RemoteConfig, end: float) -> tuple[Hold, ...]:
    """What a loan takes of each of its nodes until `end`."""
    taken = [Hold({found.host: found.mask}, need.cpus, need.memory_mb, end)]
    for node, lent in found.donors.items():
        gpus = lent.bit_count()
        cpus, memory_mb = settings.donor_cpus * gpus, settings.donor_memory_mb * gpus
        taken.append(Hold({node: lent}, cpus, memory_mb, end))
    return tuple(taken)


def gpus_of(holds: Sequence[Hold]) -> list[tuple[str, int]]:
    """Node and mask of everything held."""
    return [pair for hold in holds for pair in hold.gpus.items()]
