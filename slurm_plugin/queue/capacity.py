"""The nodes' capacity, and what jobs and promises hold of it. Nothing is changed in place."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from policies import mask_of
from policies.contract.bits import lowest_bits
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode

#: States in which Slurm starts nothing on a node. COMPLETING is not among them: it is over in
#: a moment, and a job that is released meanwhile starts right then.
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
    """What one node has, and what of it is free."""

    name: str
    #: The GRES type of each GPU, in Slurm's order of indices; '' for GPUs without a type.
    gpu_types: tuple[str, ...]
    #: Free GPUs, a mask of Slurm's indices.
    free: int
    #: Free CPUs.
    cpus: int
    #: Free memory in MB.
    memory_mb: int
    #: Jobs that run there.
    jobs: int = 0
    weight: int = 1
    partitions: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    #: Does Slurm start jobs there?
    is_open: bool = True
    #: GPU model; GPUs are lent among nodes of one model.
    model: str = ""
    #: Nodes of one kind have the same topology and may serve one job together.
    kind: str = ""
    #: A mask of the GPUs of each socket; () where that is not known.
    sockets: tuple[int, ...] = ()
    #: CPUs of the whole node; where not given, enough for any job.
    all_cpus: int = 1 << 30
    #: Memory of the whole node in MB; where not given, enough for any job.
    all_memory_mb: int = 1 << 50

    @property
    def all_gpus(self) -> int:
        """The mask of every GPU."""
        return (1 << len(self.gpu_types)) - 1


Nodes = Mapping[str, Node]


class Gpus(NamedTuple):
    """A node's GPUs: the type of each, the mask of those in use, their model."""

    types: tuple[str, ...]
    used: int
    model: str


@dataclass(frozen=True, slots=True)
class Hold:
    """What one job holds: GPUs by node, CPUs and memory on each of them, until when (epoch)."""

    gpus: Mapping[str, int] = field(default_factory=dict)
    cpus: int = 0
    memory_mb: int = 0
    end: float = math.inf


def gpus_of_one_model(node: SlurmNode) -> Gpus | None:
    """The GPUs of a node whose GPUs are of one GRES type; None for any other node.

    Where Slurm does not say which GPUs are in use, all of them count as in use.
    """
    if len(node.gpus) != 1:
        return None
    [(model, count)] = node.gpus.items()
    is_known = sum(node.used_by_type.values()) <= len(node.used)
    used = mask_of(node.used) if is_known else (1 << count) - 1
    return Gpus((model,) * count, used, model)


def gpus_of_any_type(node: SlurmNode) -> Gpus:
    """The GPUs of any node, for who asks how many are free.

    Where Slurm does not say which GPUs are in use, as many count as in use as it says.
    """
    types = tuple(model for model, count in node.gpus.items() for _ in range(count))
    used = mask_of(node.used)
    others = (1 << len(types)) - 1 & ~used
    unsaid = max(0, sum(node.used_by_type.values()) - len(node.used))
    return Gpus(types, used | lowest_bits(others, unsaid), "")


def nodes_of(
    nodes: Iterable[SlurmNode],
    running: Iterable[QueuedJob],
    gpus_of: Callable[[SlurmNode], Gpus | None] = gpus_of_one_model,
    machine: Callable[[str], tuple[str, tuple[int, ...]]] = lambda name: ("", ()),
) -> dict[str, Node]:
    """The nodes by name, from Slurm's own figures.

    A node of which `gpus_of` says None is left out. `machine` gives a node's kind, and its GPUs
    by socket.
    """
    jobs = Counter(name for job in running for name in job.nodes)
    capacity = {}
    for node in nodes:
        gpus = gpus_of(node)
        if gpus is None:
            continue
        capacity[node.name] = Node(
            node.name,
            gpus.types,
            (1 << len(gpus.types)) - 1 & ~gpus.used,
            max(0, node.cpus - node.alloc_cpus),
            max(0, node.memory_mb - node.alloc_memory_mb),
            jobs[node.name],
            node.weight,
            frozenset(node.partitions),
            frozenset(node.features),
            is_open(node),
            gpus.model,
            *machine(node.name),
            node.cpus,
            node.memory_mb,
        )
    return capacity


def is_open(node: SlurmNode) -> bool:
    """Does Slurm start jobs on the node?"""
    return not closed_states(node)


def closed_states(node: SlurmNode) -> frozenset[str]:
    """The node's states, without Slurm's flags, in which Slurm starts nothing there."""
    return CLOSED & {state.upper().rstrip("*~#!%$@^-+") for state in node.state}


def held_by(job: QueuedJob, now: float) -> Hold:
    """What a running job holds, and when its time limit ends; one that overruns ends now."""
    gpus = {name: mask_of(indices) for name, indices in job.gpus.items()}
    cpus = job.cpus // max(1, len(job.nodes))
    memory = job.memory_per_node_mb or job.memory_per_cpu_mb * cpus
    end = max(float(job.end), now) if job.end else math.inf
    return Hold({name: gpus.get(name, 0) for name in job.nodes or gpus}, cpus, memory, end)


def holds_in(nodes: Nodes, jobs: Iterable[QueuedJob], now: float) -> list[Hold]:
    """What the jobs that do not wait hold of `nodes`.

    The queue is read before the nodes: a job may have ended in between. Its GPUs are free, and
    must not come free once more at the end of its time limit: they may be another job's by then.
    """
    holds = []
    for job in jobs:
        if job.state != "PENDING":
            hold = held_by(job, now)
            gpus = {n: m & ~nodes[n].free if n in nodes else m for n, m in hold.gpus.items()}
            if any(gpus.values()) or not any(hold.gpus.values()):
                holds.append(replace(hold, gpus=gpus))
    return holds


def end_of(job: QueuedJob, now: float) -> float:
    """When a job that starts now ends by its time limit (epoch); inf without a limit."""
    return now + job.time_limit_s if job.time_limit_s else math.inf


def with_hold(nodes: Nodes, hold: Hold) -> dict[str, Node]:
    """The nodes once `hold` is taken; a node that is not there is left out."""
    return _changed(nodes, (hold,), 1)


def without_holds(nodes: Nodes, holds: Iterable[Hold]) -> dict[str, Node]:
    """The nodes once all these holds are given back."""
    return _changed(nodes, holds, -1)


def _changed(nodes: Nodes, holds: Iterable[Hold], times: int) -> dict[str, Node]:
    after = dict(nodes)
    for hold in holds:
        for name, mask in hold.gpus.items():
            if (node := after.get(name)) is not None:
                after[name] = replace(
                    node,
                    free=node.free & ~mask if times > 0 else node.free | mask & node.all_gpus,
                    cpus=node.cpus - times * hold.cpus,
                    memory_mb=node.memory_mb - times * hold.memory_mb,
                    jobs=max(0, node.jobs + times),
                )
    return after


def emptied(nodes: Nodes) -> dict[str, Node]:
    """The nodes as they would be up and without any job: what could ever be free."""
    return {
        name: replace(
            node,
            free=node.all_gpus,
            cpus=node.all_cpus,
            memory_mb=node.all_memory_mb,
            jobs=0,
            is_open=True,
        )
        for name, node in nodes.items()
    }
