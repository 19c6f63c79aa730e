"""Where a job could start: single nodes, or groups of nodes on which the same GPUs are free.

Slurm takes the same GRES types on every node of a job. Where each GPU has a type of its own, a
job of several nodes therefore needs one set of GPUs that is free on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace

from gres_topology import features
from slurm_plugin.queue.capacity import Hold, Node, Nodes
from slurm_plugin.slurm.interface import Reservation, SlurmPartition

RESERVED = "a reservation begins before its time is over"
BESIDE_OTHERS = "which cores other jobs leave it beside the free GPUs, Slurm alone knows"
HALF_CLOSED = "a node that is switched off, reserved in part or one user's alone has room"
#: The most sets of GPUs that are tried for a job of several nodes of one kind.
MAX_SETS = 1024


@dataclass(frozen=True, slots=True)
class Spread:
    """How Slurm may spread a job: over as many nodes, with as many GPUs on each, as it finds."""

    #: What a node gives that has GPUs for one share, for two, and so on: GPUs, CPUs, MB.
    shares: tuple[tuple[int, int, int], ...]
    #: What all nodes together have to give.
    gpus: int
    cpus: int
    #: Nodes; 0 for no upper bound.
    least: int = 1
    most: int = 0
    #: For each CPU; 0 where the job's memory is not counted by CPUs.
    mem_cpu_mb: int = 0


@dataclass(frozen=True, slots=True)
class Need:
    """What a job needs of each of its `nodes` nodes."""

    gpus: int
    nodes: int = 1
    cpus: int = 1
    memory_mb: int = 0
    partitions: frozenset[str] = frozenset()
    features: str = ""
    req_nodes: frozenset[str] = frozenset()
    exc_nodes: frozenset[str] = frozenset()
    exclusive: bool = False
    #: Its GPUs are to lie evenly on so many sockets; 0 where the user does not mind.
    sockets: int = 0
    #: Its GPUs are to be of these GRES types, and a node must have all of them; empty: of any.
    types: frozenset[str] = frozenset()
    #: How Slurm may spread the job otherwise; None where each node has the same in any case.
    spread: Spread | None = None
    #: As in ResourceRequest of protocol.py.
    by_core: bool = False
    by_thread: bool = False

    def hold(self, names: Iterable[str], mask: int, end: float) -> Hold:
        """What the job holds with the GPUs `mask` on these nodes, until `end` (epoch)."""
        # Which of several partitions it starts in is not known.
        partition = min(self.partitions) if len(self.partitions) == 1 else ""
        return Hold(dict.fromkeys(names, mask), self.cpus, self.memory_mb, end, partition)


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes of one kind for one job; `free` is what is free on all of them."""

    names: tuple[str, ...]
    gpu_types: tuple[str, ...]
    free: int
    weight: int

    @property
    def own(self) -> str:
        """The name that a policy sees."""
        return self.names[0]


def may_use(need: Need, node: Node) -> bool:
    """May the job ever run on this node? Raises Unsupported where its constraint is not judged."""
    return (
        bool(not need.partitions or need.partitions & node.partitions)
        and node.name not in need.exc_nodes
        and len(node.gpu_types) >= need.gpus
        and need.types.issubset(node.gpu_types)
        and features.holds(need.features, node.features)
        and (not need.req_nodes or need.nodes > len(need.req_nodes) or node.name in need.req_nodes)
    )


def most_of(partitions: Iterable[str], nodes: Nodes, limit: Callable[[SlurmPartition], int]) -> int:
    """The highest of the partitions' limits of one kind; 0 where one of them has no such limit."""
    most = 0
    for name in partitions:
        found = (node.limits[name] for node in nodes.values() if name in node.limits)
        one = next(found, None)
        if one is None or not limit(one):
            return 0
        most = max(most, limit(one))
    return most


def cpus_for(need: Need, node: Node) -> int:
    """The free CPUs of the node that Slurm would give the job."""
    return node.cpus_for(need.gpus, need.partitions, need.exclusive)


def withheld(need: Need, node: Node) -> str:
    """The free CPUs that Slurm does not give the job, and by which setting.

    '' where it gets all that it needs.
    """
    gets, kept = cpus_for(need, node), node.kept_from(need.gpus)
    if gets >= min(node.cpus, need.cpus):
        return ""
    whose = [f"{kept} are for jobs with more GPUs (RestrictedCoresPerGPU)"] if kept else []
    if gets < node.cpus - kept:
        whose.append(f"{gets} are left to its partition (MaxCPUsPerNode, MaxCPUsPerSocket)")
    return f"{node.name}: of its {node.cpus} free CPUs {' and '.join(whose)}"


def fits(need: Need, node: Node) -> bool:
    """Could one node's share of the job start there now?"""
    return (
        node.is_open
        and free_for(need, node).bit_count() >= need.gpus
        and cpus_for(need, node) >= need.cpus
        and node.memory_mb >= need.memory_mb
        and not (need.exclusive and node.jobs)
        and may_use(need, node)
    )


def serves(need: Need, node: Node) -> bool:
    """Could the node be one of the job's now, on whatever GPUs are free?"""
    if need.nodes == 1 and need.sockets == 1:
        return bool(groups(need, {node.name: node}))
    return fits(need, node)


def fullest(need: Need, nodes: Nodes) -> list[Node]:
    """Where one node's share of the job could start now: of the lowest weight the fullest first.

    Raises Unsupported where the job's constraint is not judged.
    """
    room = (node for node in nodes.values() if fits(need, node))
    return sorted(room, key=lambda node: (node.weight, node.free.bit_count(), node.name))


def free_for(need: Need, node: Node) -> int:
    """The mask of the free GPUs that the job can have."""
    return node.free & mask_of_types(node.gpu_types, need.types) if need.types else node.free


def mask_of_types(gpu_types: Sequence[str], chosen: Container[str]) -> int:
    """The mask of those of a node's GPUs whose type is among `chosen`."""
    return sum(1 << i for i, gpu_type in enumerate(gpu_types) if gpu_type in chosen)


def why_slurms(need: Need, nodes: Nodes) -> str:
    """Why a job that fits on no open node is Slurm's own: one that Slurm may open has room.

    '' where there is none such. Slurm does not see a job behind a gate.
    """
    is_room = any(node.is_slurms for node in nodes.values()) and groups(need, as_slurms(nodes))
    return HALF_CLOSED if is_room else ""


def as_slurms(nodes: Nodes) -> Nodes:
    """The nodes with those open that are Slurm's to open."""
    closed = {n: replace(node, is_open=True) for n, node in nodes.items() if node.is_slurms}
    return {**nodes, **closed} if closed else nodes


def unreserved(nodes: Nodes, reserved: Iterable[Reservation], now: float, end: float) -> Nodes:
    """Those of the nodes on which a job from `now` to `end` (epochs) meets no reservation.

    Slurm may start a job on others, too, where a reservation is of a part of the node alone.
    """
    taken = {name for one in reserved if one.start < end and now < one.end for name in one.nodes}
    if taken.isdisjoint(nodes):
        return nodes
    return {name: node for name, node in nodes.items() if name not in taken}


def has_cpus_for_sure(need: Need, node: Node) -> bool:
    """Do all releases of Slurm find as many CPUs here as are reckoned, or as the job needs?"""
    if not node.limits:
        return True
    sure = node.cpus_for(need.gpus, need.partitions, need.exclusive, for_sure=True)
    return sure >= min(need.cpus, cpus_for(need, node))


def _is_sure(need: Need, node: Node) -> bool:
    """Does Slurm start the job here whichever cores other jobs have?

    Not where it needs cores that lie in some way, or takes whole sockets. And Slurm gives no job
    the GPUs of sockets alone on which its partition has all that it may (MaxCPUsPerSocket), and
    may count others' CPUs as the partition's (MaxCPUsPerNode).
    """
    by_thread = need.by_thread and node.threads > 1
    if node.jobs and (need.by_core or node.by_core or by_thread):
        return False
    return has_cpus_for_sure(need, node)


def open_groups(
    need: Need,
    nodes: Nodes,
    reserved: Iterable[Reservation],
    now: float,
    end: float,
    first: str = "",
) -> tuple[list[Group], str]:
    """Where a job from `now` to `end` (epochs) meets no reservation; else why it is Slurm's own.

    Of several partitions that of `first` goes before the others, if it has room: Slurm looks at a
    job there first, and where its nodes lie in another one leaves it to the next backfill
    (`fail_by_part` in _schedule of job_scheduler.c).

    Neither where it has to wait for others. Slurm knows whether a reservation leaves room, and of
    which sockets: behind its gate the job would keep the slots from others, and be put back, again
    and again.
    """
    open_ones = unreserved(nodes, reserved, now, end)
    sure = {n: node for n, node in open_ones.items() if _is_sure(need, node)}
    if first in need.partitions and (
        found := groups(replace(need, partitions=frozenset({first})), sure)
    ):
        return found, ""
    if found := groups(need, sure):
        return found, ""
    if groups(need, open_ones):
        return [], BESIDE_OTHERS
    if open_ones is not nodes and groups(need, nodes):
        return [], RESERVED
    return [], why_slurms(need, nodes)


def groups(need: Need, nodes: Nodes) -> list[Group]:
    """Where the job could start now, what Slurm would take first (lowest weight, then name).

    One group per node for a job of one node; of several nodes the best group of each kind.
    """
    if need.sockets == 1:
        return _on_one_socket(replace(need, sockets=0), nodes)
    ready = [node for node in nodes.values() if fits(need, node)]
    if need.types:
        ready = [replace(node, free=free_for(need, node)) for node in ready]
    ready.sort(key=lambda node: (node.weight, node.name))
    if need.nodes == 1:
        if len(need.req_nodes) > 1:
            return []
        return [Group((n.name,), n.gpu_types, n.free, n.weight) for n in ready]
    kinds: dict[tuple[str, tuple[str, ...]], list[Node]] = {}
    for node in ready:
        kinds.setdefault((node.kind, node.gpu_types), []).append(node)
    best = (_best(need, types, alike) for (_, types), alike in kinds.items())
    return [group for group in best if group is not None]


def _on_one_socket(need: Need, nodes: Nodes) -> list[Group]:
    """The same with GPUs of one socket only: of each node the socket with most that are free."""
    best: dict[str, Group] = {}
    for i in range(max((len(node.sockets) for node in nodes.values()), default=0)):
        part = {
            name: replace(node, free=node.free & node.sockets[i])
            for name, node in nodes.items()
            if i < len(node.sockets)
        }
        for group in groups(need, part):
            before = best.get(group.own)
            if before is None or group.free.bit_count() > before.free.bit_count():
                best[group.own] = group
    return sorted(best.values(), key=lambda group: (group.weight, group.names))


def is_even(need: Need, node: Node, mask: int) -> bool:
    """Do these GPUs lie on the sockets as the job asked?"""
    if need.sockets < 2:
        return True
    counts = [count for socket in node.sockets if (count := (mask & socket).bit_count())]
    return counts == [need.gpus // need.sockets] * need.sockets


def _best(need: Need, types: tuple[str, ...], nodes: list[Node]) -> Group | None:
    """The nodes on which most GPUs are free together; of equals those that Slurm takes first.

    Every set of GPUs that is free on several of the nodes is tried, up to MAX_SETS sets.
    """
    must = [node for node in nodes if node.name in need.req_nodes]
    if len(nodes) < need.nodes or len(must) < len(need.req_nodes):
        return None
    together = []
    for mask in _free_together(need, must, nodes):
        others = [n for n in nodes if not mask & ~n.free and n.name not in need.req_nodes]
        chosen = (must + others)[: need.nodes]
        if len(chosen) < need.nodes:
            continue
        free = chosen[0].free
        for node in chosen:
            free &= node.free
        names = tuple(node.name for node in chosen)
        together.append(Group(names, types, free, max(node.weight for node in chosen)))
    return min(together, key=lambda g: (-g.free.bit_count(), g.weight, g.names), default=None)


def _free_together(need: Need, must: list[Node], nodes: list[Node]) -> set[int]:
    """Masks of at least `need.gpus` GPUs that are free on `must` and on some more nodes."""
    everywhere = -1
    for node in must:
        everywhere &= node.free
    masks: set[int] = set()
    for free in dict.fromkeys(node.free & everywhere for node in nodes):
        for mask in (free, *(free & other for other in masks)):
            if mask.bit_count() >= need.gpus and len(masks) < MAX_SETS:
                masks.add(mask)
    return masks
