"""The nodes' capacity, and what jobs and promises hold of it. Nothing is changed in place."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from policies import mask_of
from policies.contract.bits import lowest_bits
from slurm_plugin.slurm.interface import QueuedJob, Reservation, SlurmNode, SlurmPartition
from slurm_plugin.slurm.slot_types import model_of, slots_of

#: States in which Slurm starts nothing on a node. COMPLETING is not among them: it is over in
#: a moment, and a job that is released meanwhile starts right then.
CLOSED = frozenset(
    (
        *("DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "UNKNOWN"),
        *("NOT_RESPONDING", "INVALID_REG", "MAINTENANCE", "RESERVED"),
        *("FUTURE", "DYNAMIC_FUTURE", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"),
        *("REBOOT_REQUESTED", "REBOOT_ISSUED"),
    )
)


#: Those of them that Slurm ends for a job that has no other place: it switches nodes on.
ASLEEP = frozenset(("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"))
#: Flags of reservations that take other jobs, too.
TAKES_OTHERS = frozenset(("MAGNETIC", "FLEX"))


@dataclass(frozen=True, slots=True)
class Node:
    """What one node has, and what of it is free."""

    name: str
    #: The GRES type of each GPU, in Slurm's order of indices; '' for GPUs without a type.
    gpu_types: tuple[str, ...]
    #: Free GPUs, a mask of Slurm's indices.
    free: int
    #: Free CPUs; `cpus_for` says how many of them a job may have.
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
    #: CPUs beside each GPU that are for jobs with GPUs alone (RestrictedCoresPerGPU), and how many
    #: of all of them such jobs hold: as many as they may, for Slurm does not say which ones.
    cpus_by_gpu: int = 0
    opened: int = 0
    #: The partitions that allow their jobs so many nodes, or CPUs of a node or socket; what their
    #: jobs hold here, be it 0, of those that have jobs on any node.
    limits: Mapping[str, SlurmPartition] = field(default_factory=dict)
    taken: Mapping[str, int] = field(default_factory=dict)
    socket_count: int = 1
    #: It is closed, but Slurm itself may start jobs there: it would switch the node on, or knows
    #: what a reservation leaves.
    is_slurms: bool = False
    #: Slurm gives jobs whole sockets, or whole cores for each task, so free CPUs may be no room.
    by_core: bool = False
    #: Of each core.
    threads: int = 1

    @property
    def all_gpus(self) -> int:
        """The mask of every GPU."""
        return (1 << len(self.gpu_types)) - 1

    @property
    def withholds(self) -> bool:
        """Are there free CPUs that Slurm does not give every job?"""
        return bool(self.cpus_by_gpu or self.limits)

    def cpus_for(
        self,
        gpus: int,
        partitions: frozenset[str] = frozenset(),
        is_exclusive: bool = False,
        for_sure: bool = False,
    ) -> int:
        """The free CPUs that Slurm would give a job with so many GPUs here.

        In the one of its partitions that allows most; in any partition for a job that names none.
        `for_sure`: whichever sockets the partition's other jobs are on, and in every release.
        """
        free = self.cpus - self.kept_from(gpus)
        if not self.limits:
            return free
        names = self.partitions & partitions if partitions else self.partitions
        rooms = [self._room_in(name, is_exclusive, for_sure) for name in names]
        return min(free, max(rooms, default=free))

    def kept_from(self, gpus: int) -> int:
        """The free CPUs that are for jobs with more GPUs than so many here (or of other ones)."""
        if not self.cpus_by_gpu:
            return 0
        return max(0, self.cpus_by_gpu * (len(self.gpu_types) - gpus) - self.opened)

    def _room_in(self, partition: str, is_exclusive: bool, for_sure: bool) -> int:
        """CPUs that the partition's jobs may still take (_allocate_sc of select/cons_tres).

        A socket counts until it is full, and Slurm does not say which ones jobs are on: as few are
        taken to be full as may be, or as many. For a partition without any jobs some releases
        (24.11.1 to 25.05.2) count the CPUs of all others' jobs as its own.
        """
        room, limit = self.all_cpus, self.limits.get(partition)
        taken = self.taken.get(partition, self.all_cpus - self.cpus if for_sure else 0)
        if limit is not None and (most := limit.max_cpus_per_socket):
            full = max(0, taken - self.socket_count * (most - 1))
            room = most - taken if for_sure else most * (self.socket_count - full)
        if limit is not None and (most := limit.max_cpus_per_node):
            # Slurm gives a job the whole of a node or nothing of it.
            room = 0 if is_exclusive and self.all_cpus > most else min(room, most - taken)
        return max(0, room)


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
    #: '' where it is not known.
    partition: str = ""


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


def gpus_by_slot(node: SlurmNode) -> Gpus | None:
    """The GPUs of a node where each has a GRES type of its own; None for any other node."""
    slots = slots_of(node.gpus)
    if not slots:
        return None
    used = sum(1 << i for i, slot in enumerate(slots) if node.used_by_type.get(slot))
    return Gpus(slots, used, model_of(slots[0]))


def nodes_of(
    nodes: Iterable[SlurmNode],
    running: Iterable[QueuedJob],
    gpus_of: Callable[[SlurmNode], Gpus | None] = gpus_of_one_model,
    machine: Callable[[str], tuple[str, tuple[int, ...]]] = lambda name: ("", ()),
    partitions: Iterable[SlurmPartition] = (),
) -> dict[str, Node]:
    """The nodes by name, from Slurm's own figures.

    A node of which `gpus_of` says None is left out. `machine` gives a node's kind, and its GPUs
    by socket. Of `partitions` those count that limit nodes, or CPUs by node or socket.
    """
    nodes, running = list(nodes), list(running)
    jobs = Counter(name for job in running for name in job.nodes)
    limits = {
        one.name: one
        for one in partitions
        if one.max_nodes or one.max_cpus_per_node or one.max_cpus_per_socket
    }
    by_gpu = {node.name: node.cpus_by_gpu for node in nodes if node.cpus_by_gpu}
    opened, taken = _withheld(running, limits, by_gpu)
    at_work = dict.fromkeys((one for held in taken.values() for one in held), 0)
    capacity = {}
    for node in nodes:
        gpus = gpus_of(node)
        if gpus is None:
            continue
        closed = closed_states(node)
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
            not closed,
            gpus.model,
            *machine(node.name),
            node.cpus,
            node.memory_mb,
            node.cpus_by_gpu,
            opened[node.name],
            {name: limits[name] for name in node.partitions if name in limits} if limits else {},
            {**at_work, **taken.get(node.name, {})},
            max(1, node.sockets),
            bool(closed) and closed <= ASLEEP,
            threads=node.threads,
        )
    return capacity


def with_shared(
    nodes: Nodes,
    seen: Iterable[SlurmNode],
    reserved: Iterable[Reservation],
    now: float,
    running: Iterable[QueuedJob] = (),
) -> dict[str, Node]:
    """The nodes, of which those are Slurm's to open whose reservations leave other jobs room.

    Slurm shows the state `RESERVED` of every node of a reservation, be it for a few cores of it.
    And those that one user's jobs have alone: Slurm knows whose. And those with a suspended job,
    whose cores are free until it goes on.
    """
    seen = [*seen]
    cpus, keeping = {node.name: node.cpus for node in seen}, dict[str, list[Reservation]]()
    for one in reserved:
        if one.start <= now < one.end:
            for name in one.nodes:
                keeping.setdefault(name, []).append(one)

    def leaves_room(one: Reservation) -> bool:
        of_all = sum(cpus.get(name, 0) for name in one.nodes)
        return one.cpus < of_all or not TAKES_OTHERS.isdisjoint(one.flags)

    shared = {
        node.name
        for node in seen
        if closed_states(node) == {"RESERVED"} and all(map(leaves_room, keeping.get(node.name, ())))
    }
    after = {n: replace(one, is_slurms=True) if n in shared else one for n, one in nodes.items()}
    stands = {name for job in running if job.state == "SUSPENDED" for name in job.nodes}
    owned = {node.name for node in seen if node.is_owned}
    for name in (stands | owned) & after.keys():
        after[name] = replace(after[name], is_open=False, is_slurms=True)
    return after


def _withheld(
    running: Iterable[QueuedJob], limits: Container[str], by_gpu: Mapping[str, int]
) -> tuple[Counter[str], dict[str, Counter[str]]]:
    """What jobs hold by node: of the CPUs kept for GPUs, and of each limited partition's."""
    opened: Counter[str] = Counter()
    taken: dict[str, Counter[str]] = {}
    if not limits and not by_gpu:
        return opened, taken
    for job in running:
        # One that ends has given its CPUs back.
        if job.state == "COMPLETING":
            continue
        cpus = job.cpus // max(1, len(job.nodes))
        for name in job.nodes:
            gpus = len(job.gpus.get(name, ())) + len(job.shared_gpus.get(name, ()))
            opened[name] += min(cpus, gpus * by_gpu.get(name, 0))
            if job.partition in limits:
                taken.setdefault(name, Counter())[job.partition] += cpus
    return opened, taken


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
    held = {name: gpus.get(name, 0) for name in job.nodes or gpus}
    return Hold(held, cpus, memory, end, job.partition)


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


def with_hold(nodes: Nodes, *holds: Hold) -> dict[str, Node]:
    """The nodes once these holds are taken; a node that is not there is left out."""
    return _changed(nodes, holds, 1)


def without_holds(nodes: Nodes, holds: Iterable[Hold]) -> dict[str, Node]:
    """The nodes once all these holds are given back."""
    return _changed(nodes, holds, -1)


def freed(node: Node, holds: Collection[Hold]) -> Node:
    """One node once all these holds, which are on it, are given back: in one step."""
    mask = 0
    for hold in holds:
        mask |= hold.gpus[node.name]
    after = replace(
        node,
        free=node.free | mask & node.all_gpus,
        cpus=node.cpus + sum(hold.cpus for hold in holds),
        memory_mb=node.memory_mb + sum(hold.memory_mb for hold in holds),
        jobs=max(0, node.jobs - len(holds)),
    )
    for hold in holds if node.withholds else ():
        after = replace(after, **_withheld_after(after, hold, hold.gpus[node.name], -1))
    return after


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
                    **_withheld_after(node, hold, mask, times),
                )
    return after


def _withheld_after(node: Node, hold: Hold, mask: int, times: int) -> dict[str, Any]:
    """What of the fields that withhold CPUs changes with a hold."""
    changed: dict[str, Any] = {}
    if node.cpus_by_gpu and mask:
        opens = min(hold.cpus, node.cpus_by_gpu * mask.bit_count())
        changed["opened"] = max(0, node.opened + times * opens)
    if hold.partition in node.limits:
        before = node.taken.get(hold.partition, 0)
        changed["taken"] = {**node.taken, hold.partition: max(0, before + times * hold.cpus)}
    return changed


def emptied(nodes: Nodes) -> dict[str, Node]:
    """The nodes as they would be up and without any job: what could ever be free."""
    return {name: empty(node) for name, node in nodes.items()}


def empty(node: Node) -> Node:
    """The node as it would be up and without any job."""
    return replace(
        node,
        free=node.all_gpus,
        cpus=node.all_cpus,
        memory_mb=node.all_memory_mb,
        jobs=0,
        is_open=True,
        opened=0,
        taken={},
    )
