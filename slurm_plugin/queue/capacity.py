"""What is free where: nodes with their slots, and what jobs and promises hold of them.

Pure snapshots; a hold is put on or taken off by making a new one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from slurm_plugin.queue.slot_names import index_of, slots_of
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode

#: States in which Slurm starts nothing on a node. COMPLETING is none of them: it is over in
#: a moment, and a job released meanwhile starts right then.
CLOSED = frozenset(
    (
        *("DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "UNKNOWN"),
        *("NOT_RESPONDING", "INVALID_REG", "MAINTENANCE", "RESERVED"),
        *("FUTURE", "DYNAMIC_FUTURE", "POWERED_DOWN", "POWERING_DOWN"),
        *("REBOOT_REQUESTED", "REBOOT_ISSUED"),
    )
)


@dataclass(frozen=True, slots=True)
class Node:
    """One node; `free` is a mask of slots; CPUs and memory are free ones, `jobs` run there.

    Nodes of one `kind` have the same topology and may be one group of a job; `sockets` are
    masks of the slots by socket, () where that is not known. `all_cpus` and `all_memory_mb` are
    the whole node's, enough for any job where not given.
    """

    name: str
    slots: tuple[str, ...]
    free: int
    cpus: int
    memory_mb: int
    jobs: int = 0
    weight: int = 1
    partitions: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    is_open: bool = True
    kind: str = ""
    sockets: tuple[int, ...] = ()
    all_cpus: int = 1 << 30
    all_memory_mb: int = 1 << 50


Room = Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class Hold:
    """What one job holds: slots by node, CPUs and memory on each of them, until when (epoch)."""

    gpus: Mapping[str, int] = field(default_factory=dict)
    cpus: int = 0
    memory_mb: int = 0
    end: float = math.inf


def room_of(
    nodes: Iterable[SlurmNode],
    running: Iterable[QueuedJob],
    machine: Callable[[str], tuple[str, tuple[int, ...]]] = lambda name: ("", ()),
) -> dict[str, Node]:
    """The nodes whose GPUs are slots, as Slurm's own figures say.

    `machine` tells a node's kind and the slots by socket.
    """
    beside: dict[str, int] = {}
    for job in running:
        for name in job.nodes:
            beside[name] = beside.get(name, 0) + 1
    found = {}
    for node in nodes:
        slots = slots_of(node.gpus)
        if not slots:
            continue
        used = sum(
            1 << (index_of(t) or 0) for t, n in node.used_by_type.items() if t in slots and n
        )
        found[node.name] = Node(
            node.name,
            slots,
            (1 << len(slots)) - 1 & ~used,
            max(0, node.cpus - node.alloc_cpus),
            max(0, node.memory_mb - node.alloc_memory_mb),
            beside.get(node.name, 0),
            node.weight,
            frozenset(node.partitions),
            frozenset(node.features),
            not CLOSED & {state.upper().rstrip("*~#!%$@^-+") for state in node.state},
            *machine(node.name),
            node.cpus,
            node.memory_mb,
        )
    return found


def held_by(job: QueuedJob, now: float) -> Hold:
    """What a running job holds, and when its time limit ends; one that overruns ends now."""
    gpus = {name: sum(1 << i for i in found) for name, found in job.gpus.items()}
    each = max(1, len(job.nodes))
    cpus = job.cpus // each
    memory = job.memory_per_node_mb or job.memory_per_cpu_mb * cpus
    end = max(float(job.end), now) if job.end else math.inf
    return Hold({name: gpus.get(name, 0) for name in job.nodes or gpus}, cpus, memory, end)


def with_hold(room: Room, hold: Hold) -> dict[str, Node]:
    """The room once `hold` is taken; a node that is not there is left out."""
    found = dict(room)
    for name, mask in hold.gpus.items():
        if (node := found.get(name)) is not None:
            found[name] = replace(
                node,
                free=node.free & ~mask,
                cpus=node.cpus - hold.cpus,
                memory_mb=node.memory_mb - hold.memory_mb,
                jobs=node.jobs + 1,
            )
    return found


def without_hold(room: Room, hold: Hold) -> dict[str, Node]:
    """The room once `hold` is given back."""
    found = dict(room)
    for name, mask in hold.gpus.items():
        if (node := found.get(name)) is not None:
            found[name] = replace(
                node,
                free=node.free | mask & (1 << len(node.slots)) - 1,
                cpus=node.cpus + hold.cpus,
                memory_mb=node.memory_mb + hold.memory_mb,
                jobs=max(0, node.jobs - 1),
            )
    return found


def emptied(room: Room) -> dict[str, Node]:
    """The room without any job: what could ever be free.

    A node that is down or drained now counts as one that is up.
    """
    return {
        name: replace(
            node,
            free=(1 << len(node.slots)) - 1,
            cpus=node.all_cpus,
            memory_mb=node.all_memory_mb,
            jobs=0,
            is_open=True,
        )
        for name, node in room.items()
    }
