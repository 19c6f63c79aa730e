"""Where a job could start: single nodes, or groups of nodes on which the same slots are free.

Slurm takes the same GRES types on every node of a job, so a job of several nodes needs one
set of slots that is free on all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from slurm_plugin.queue import features
from slurm_plugin.queue.capacity import Hold, Node, Room
from slurm_plugin.queue.slot_names import lowest, mask_of

#: Sets of slots that are looked at for a job of several nodes of one kind.
MAX_SETS = 1024


@dataclass(frozen=True, slots=True)
class Need:
    """What a job needs of each of its `nodes` nodes.

    `sockets`: its GPUs are to lie evenly on so many sockets; 0 where the user does not mind.
    `only`: the slots (GRES types) it can have, all of them; empty where any will do.
    """

    gpus: int
    nodes: int = 1
    cpus: int = 1
    memory_mb: int = 0
    partitions: frozenset[str] = frozenset()
    features: str = ""
    req_nodes: frozenset[str] = frozenset()
    exc_nodes: frozenset[str] = frozenset()
    exclusive: bool = False
    sockets: int = 0
    only: frozenset[str] = frozenset()

    def hold(self, names: Iterable[str], mask: int, end: float) -> Hold:
        """What the job holds with these slots on these nodes."""
        return Hold(dict.fromkeys(names, mask), self.cpus, self.memory_mb, end)


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes of one kind for one job; `free` is what is free on all of them."""

    names: tuple[str, ...]
    slots: tuple[str, ...]
    free: int
    weight: int

    @property
    def own(self) -> str:
        """The name a policy sees."""
        return self.names[0]


def may_use(need: Need, node: Node) -> bool:
    """May the job run on this node at all, whatever is free there?

    Raises features.Unsupported for a constraint that cannot be judged node by node.
    """
    return (
        bool(not need.partitions or need.partitions & node.partitions)
        and node.name not in need.exc_nodes
        and len(node.slots) >= need.gpus
        and need.only.issubset(node.slots)
        and features.holds(need.features, node.features)
        and (not need.req_nodes or need.nodes > len(need.req_nodes) or node.name in need.req_nodes)
    )


def fits(need: Need, node: Node) -> bool:
    """Could one node's share of the job start there now?"""
    return (
        node.is_open
        and _only(need, node).free.bit_count() >= need.gpus
        and node.cpus >= need.cpus
        and node.memory_mb >= need.memory_mb
        and not (need.exclusive and node.jobs)
        and may_use(need, node)
    )


def _only(need: Need, node: Node) -> Node:
    """The node with nothing free but what the job can have."""
    if not need.only:
        return node
    return replace(node, free=node.free & mask_of(node.slots, need.only))


def groups(need: Need, room: Room) -> list[Group]:
    """Where the job could start now, what Slurm would take first (lowest weight, then name).

    One group per node for a job of one node; of several nodes the best group of each kind.
    """
    if need.sockets == 1:
        return _on_one_socket(replace(need, sockets=0), room)
    ready = sorted(
        (_only(need, node) for node in room.values() if fits(need, node)),
        key=lambda n: (n.weight, n.name),
    )
    if need.nodes == 1:
        if len(need.req_nodes) > 1:
            return []
        return [Group((n.name,), n.slots, n.free, n.weight) for n in ready]
    kinds: dict[tuple[str, tuple[str, ...]], list[Node]] = {}
    for node in ready:
        kinds.setdefault((node.kind, node.slots), []).append(node)
    found = [_best(need, slots, nodes) for (_, slots), nodes in kinds.items()]
    return [group for group in found if group is not None]


def _on_one_socket(need: Need, room: Room) -> list[Group]:
    """The same, with GPUs of one socket only: of each node the one with most that are free."""
    found: dict[str, Group] = {}
    for i in range(max((len(node.sockets) for node in room.values()), default=0)):
        part = {
            name: replace(node, free=node.free & node.sockets[i])
            for name, node in room.items()
            if i < len(node.sockets)
        }
        for group in groups(need, part):
            before = found.get(group.own)
            if before is None or group.free.bit_count() > before.free.bit_count():
                found[group.own] = group
    return sorted(found.values(), key=lambda group: (group.weight, group.names))


def is_even(need: Need, node: Node, mask: int) -> bool:
    """Do these slots lie on the sockets as the job asked?"""
    if need.sockets < 2:
        return True
    counts = [count for socket in node.sockets if (count := (mask & socket).bit_count())]
    return counts == [need.gpus // need.sockets] * need.sockets


def are_apart(need: Need, room: Room) -> bool:
    """Could Slurm start the job of several nodes now, but with other GPUs on each of them?"""
    return need.nodes > 1 and sum(fits(need, node) for node in room.values()) >= need.nodes


def _best(need: Need, slots: tuple[str, ...], nodes: list[Node]) -> Group | None:
    """The nodes on which most slots are free together; of equals Slurm's first.

    Whatever is free on all nodes of a group is free on some of `nodes` together, so a group is
    found where there is one, up to MAX_SETS.
    """
    must = [node for node in nodes if node.name in need.req_nodes]
    if len(nodes) < need.nodes or len(must) < len(need.req_nodes):
        return None
    best: Group | None = None
    for mask in _free_together(need, must, nodes):
        others = [n for n in nodes if not mask & ~n.free and n.name not in need.req_nodes]
        chosen = (must + others)[: need.nodes]
        if len(chosen) < need.nodes:
            continue
        free = chosen[0].free
        for node in chosen:
            free &= node.free
        names = tuple(node.name for node in chosen)
        group = Group(names, slots, free, max(node.weight for node in chosen))
        if best is None or _rank(group) < _rank(best):
            best = group
    return best


def _free_together(need: Need, must: list[Node], nodes: list[Node]) -> set[int]:
    """Masks of at least `need.gpus` slots that are free on `must` and on some more nodes."""
    everywhere = -1
    for node in must:
        everywhere &= node.free
    found: set[int] = set()
    for free in dict.fromkeys(node.free & everywhere for node in nodes):
        for mask in (free, *(free & other for other in found)):
            if mask.bit_count() >= need.gpus and len(found) < MAX_SETS:
                found.add(mask)
    return found


def _rank(group: Group) -> tuple[int, int, tuple[str, ...]]:
    return -group.free.bit_count(), group.weight, group.names


def first_hold(need: Need, room: Room, end: float) -> Hold | None:
    """What Slurm itself would take now; None where the job does not fit."""
    found = groups(need, room)
    if not found:
        return None
    return need.hold(found[0].names, lowest(found[0].free, need.gpus), end)
