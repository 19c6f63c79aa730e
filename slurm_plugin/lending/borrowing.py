"""Loans in the words of the slots mode: who may borrow, of which nodes, and what a loan holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from policies.r_queue import Release
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.lending.offer import Borrower, Market, Offer, Spare
from slurm_plugin.protocol import Submit
from slurm_plugin.queue.candidates import Need, may_use
from slurm_plugin.queue.capacity import Hold, Room


@dataclass(frozen=True, slots=True)
class Offered:
    """An offer and all that it takes, the job's own share first."""

    offer: Offer
    holds: tuple[Hold, ...]


def may_borrow(asked: Submit) -> bool:
    """Can a job of this kind borrow? Batch jobs of one node, with GPUs counted per node or in all.

    Others ask Slurm for GPUs in ways that their steps repeat, or get them on several nodes.
    """
    keys = asked.slots
    return (
        keys is not None
        and keys.form in ("node", "job")
        and keys.batch
        and not (keys.array or keys.het or keys.exclusive or keys.req_nodes)
        and not (keys.cpus_per_gpu or keys.mem_gpu_mb)
        and not (keys.tpn or keys.tpj).startswith("gres:")
        and asked.nodes <= 1
        and asked.max_nodes <= 1
        and (asked.per_node if keys.form == "node" else asked.gpus) >= 2
    )


def borrower(need: Need, room: Room) -> Borrower:
    """The job behind a need, with the nodes that it may use."""
    one = replace(need, gpus=1)
    usable = frozenset(name for name, node in room.items() if node.slots and may_use(one, node))
    return Borrower(need.gpus, need.cpus, need.memory_mb, usable)


def market(room: Room, releases: Sequence[Release] = ()) -> Market:
    """What the open nodes have left."""
    spares = {
        name: Spare(
            name,
            node.free,
            node.cpus,
            node.memory_mb,
            node.slots[0].rpartition(".")[0],
            node.jobs,
        )
        for name, node in room.items()
        if node.is_open and node.slots
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
