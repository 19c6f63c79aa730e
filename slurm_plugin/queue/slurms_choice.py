"""What Slurm itself could start now, and where: with other GPUs on each node, too.

GPUs that are counted for the whole job, or for its tasks, it takes from as many nodes as it needs
(gres_sched_add of topology/common/gres_sched.c, _eval_nodes_consec of eval_nodes.c beside it).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import replace
from functools import lru_cache
from heapq import nlargest
from typing import NamedTuple

from gres_topology import Network
from policies.contract.bits import lowest_bits
from slurm_plugin.queue.candidates import Need, cpus_for, fits, free_for, groups, may_use
from slurm_plugin.queue.capacity import Hold, Node, Nodes


class Share(NamedTuple):
    """What one node could give a job: GPUs, CPUs, and the memory (MB) that goes with them."""

    gpus: int = 0
    cpus: int = 0
    memory_mb: int = 0


NOTHING = Share()


@lru_cache(256)
def parts_of(need: Need) -> tuple[Need, ...]:
    """What a node has to have for one share of a job that Slurm may spread, for two, and so on."""
    spread = need.spread
    assert spread is not None
    # More nodes than it names may be its own, unless it has a bound on them.
    nodes = spread.most or max(need.nodes, len(need.req_nodes) + 1)
    return tuple(
        replace(need, gpus=gpus, cpus=cpus, memory_mb=memory_mb, nodes=nodes, spread=None)
        for gpus, cpus, memory_mb in spread.shares
    )


def least_of(need: Need) -> Need:
    """What each of the job's nodes has to have."""
    return parts_of(need)[0] if need.spread else need


def usable(need: Need, nodes: Nodes) -> frozenset[str]:
    """The nodes that the job may use, whatever is free there."""
    need = least_of(need)
    return frozenset(name for name, node in nodes.items() if may_use(need, node))


def share_of(need: Need, node: Node) -> Share:
    """The most that the node could give now to a job that Slurm may spread."""
    spread, parts, free = need.spread, parts_of(need), free_for(need, node).bit_count()
    assert spread is not None
    unit = parts[0].gpus
    for part in reversed(parts[: free // unit] if unit else parts):
        if fits(part, node):
            cpus = cpus_for(part, node)
            if spread.mem_cpu_mb:
                cpus = min(cpus, node.memory_mb // spread.mem_cpu_mb)
            if not unit:
                cpus -= cpus % part.cpus
            return Share(part.gpus, cpus, part.memory_mb)
    return NOTHING


def is_enough(need: Need, shares: Mapping[str, Share]) -> bool:
    """Do these nodes together give all that the job asks for?"""
    spread = need.spread
    assert spread is not None
    giving = [share for share in shares.values() if share.cpus]
    most = spread.most or len(giving)
    return (
        len(giving) >= spread.least
        and all(shares.get(name, NOTHING).cpus for name in need.req_nodes)
        and _most(most, [share.gpus for share in giving]) >= spread.gpus
        and _most(most, [share.cpus for share in giving]) >= spread.cpus
    )


def _most(count: int, amounts: Collection[int]) -> int:
    """The sum of the largest ones, at most so many."""
    return sum(amounts if count >= len(amounts) else nlargest(count, amounts))


def spread_hold(need: Need, nodes: Nodes, end: float) -> Hold | None:
    """What Slurm may take now of several nodes, until `end` (epoch).

    None where it cannot start the job so. Which nodes it takes goes by more than we know: those of
    the lowest weight first, and of these the ones with most free GPUs, so that there are few.
    """
    spread = need.spread
    if spread is None:
        return None
    shares = {name: share for name, node in nodes.items() if (share := share_of(need, node)).cpus}
    if not is_enough(need, shares):
        return None
    order = sorted(
        shares,
        key=lambda name: (
            name not in need.req_nodes,
            nodes[name].weight,
            -shares[name].gpus,
            -shares[name].cpus,
            name,
        ),
    )
    masks, gpus, cpus, unit = dict[str, int](), spread.gpus, spread.cpus, spread.shares[0][0]
    for name in order[: spread.most or len(order)]:
        is_named = name in need.req_nodes
        if gpus <= 0 and cpus <= 0 and len(masks) >= spread.least and not is_named:
            break
        # A node that the job names is its own, with one GPU at least, if it asks for any.
        named = len(need.req_nodes - masks.keys() - {name})
        count = min(shares[name].gpus, max(gpus - unit * named, unit))
        masks[name] = lowest_bits(free_for(need, nodes[name]), count)
        gpus, cpus = gpus - count, cpus - shares[name].cpus
    each = -(-spread.cpus // len(masks))
    memory_mb = max(each * spread.mem_cpu_mb, *(shares[name].memory_mb for name in masks))
    return replace(need.hold((), 0, end), gpus=masks, cpus=each, memory_mb=memory_mb)


def rooms(need: Need, nodes: Nodes, network: Network | None) -> list[Nodes]:
    """The nodes, as sets in one of which Slurm keeps the whole job.

    In topology/block (eval_nodes_block.c) a job gets nodes of one base block, or of so many joined
    ones as Slurm plans with for a job of its size, and there of as few smaller ones as suffice:
    those of the nodes that it names, then those with most room. Nodes in no block it gets only
    where none of a block has room, or where it may use no other (topology_p_eval_nodes).
    """
    if network is None or not network.units:
        return [nodes]
    joined = frozenset[str]().union(*(unit.nodes for unit in network.units))
    count = need.spread.least if need.spread else need.nodes
    any_node = replace(least_of(need), req_nodes=frozenset())
    if joined.isdisjoint(usable(any_node, nodes)):
        return [nodes]
    ready = {name for name, node in nodes.items() if fits(any_node, node)}
    if network.sizes and ready and joined.isdisjoint(ready):
        sets = [{name: node for name, node in nodes.items() if name not in joined}]
    elif count > 1 or need.spread:
        sets = [_together(need, nodes, ready, *some) for some in _parts(network, count)]
    elif network.sizes:
        sets = [{name: node for name, node in nodes.items() if name in joined}]
    else:
        return [nodes]
    # It fills the one with the least room that suffices.
    sets.sort(key=lambda some: len(ready & some.keys()))
    return [some for some in sets if some and need.req_nodes <= some.keys()]


def _together(
    need: Need, nodes: Nodes, ready: Set[str], parts: list[frozenset[str]], most: int
) -> dict[str, Node]:
    """The nodes of those parts that the job may have together."""
    if most < len(parts):
        parts = sorted(parts, key=lambda part: (not need.req_nodes & part, -len(ready & part)))
    return {name: nodes[name] for part in parts[:most] for name in part if name in nodes}


def _parts(network: Network, count: int) -> list[tuple[list[frozenset[str]], int]]:
    """For a job of `count` nodes: sets of nodes, and on how many of them together it may be."""
    names, sizes = [unit.nodes for unit in network.units], network.sizes
    if not sizes:
        return [([one], 1) for one in names]
    base = sizes[0]
    level = (-(-count // base) - 1).bit_length()
    whole = next((size // base for size in sizes if size >= base << level), len(names))
    part = max((size // base for size in sizes if size < base << level), default=1)
    joined = [names[at : at + part] for at in range(0, len(names), part)]
    parts = [frozenset[str]().union(*some) for some in joined]
    many, most = -(-whole // part), -(-count // (part * base))
    return [(parts[at : at + many], most) for at in range(0, len(parts), many)]


def most_together(network: Network | None, ready: Set[str]) -> int:
    """How many of these nodes one job may have at most."""
    if network is None or not network.units:
        return len(ready)
    most, below = min(1, len(ready)), 1
    for size in network.sizes or (len(ready),):
        for parts, bound in _parts(network, size):
            counts = sorted((len(ready & part) for part in parts), reverse=True)
            count = min(size, sum(counts[:bound]))
            # A smaller job goes by smaller blocks.
            most = max(most, count if count > below else 0)
        below = size
    return most


def are_apart(need: Need, nodes: Nodes) -> bool:
    """Could Slurm start the job of several nodes now, but with other GPUs on each of them?"""
    return need.nodes > 1 and sum(fits(need, node) for node in nodes.values()) >= need.nodes


def can_start(need: Need, nodes: Nodes) -> bool:
    """Could Slurm start the job now, on whatever GPUs are free?"""
    if need.spread:
        return is_enough(need, {name: share_of(need, node) for name, node in nodes.items()})
    if need.nodes > 1:
        return are_apart(need, nodes)
    if need.sockets == 1:
        return bool(groups(need, nodes))
    return len(need.req_nodes) <= 1 and any(fits(need, node) for node in nodes.values())


def first_hold(need: Need, nodes: Nodes, end: float) -> Hold | None:
    """What Slurm itself would take now; None where the job does not fit."""
    first = next(iter(groups(need, nodes)), None)
    if first is None:
        return spread_hold(need, nodes, end)
    return need.hold(first.names, lowest_bits(first.free, need.gpus), end)
