"""What one node can offer a job: its CPUs, its GPUs, and which sockets they come from.

A model of Slurm's `_can_job_run_on_node`, `gres_filter_sock_core` and `gres_sched_add` (24.11) for
jobs that name no number of tasks; threads are not counted, GPUs not bound to their socket's cores.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from simulation.stock.nouns import Ask, StockMachine, StockNode

#: The part of a node's scheduling weight that counts the GPUs beside free cores.
_MOST_NEAR = 0xFF


@dataclass(slots=True)
class NodeOffer:
    """A node that has what the job needs, and what is left of it as the choice goes on."""

    node: StockNode
    ask: Ask
    #: Slurm's scheduling weight: the node's, then fewer free GPUs beside free cores.
    weight: int
    #: GPUs that the job may take here at most, by its request and by the node's cores.
    most_gpus: int
    #: CPUs that the job may be given.
    cpus: int
    #: CPUs and GPUs together: nodes with few are the first to be left out.
    resources: int
    #: Cores of each socket that are still considered, and how many the job may be given.
    usable: list[int] = field(default_factory=list)
    limit: list[int] = field(default_factory=list)
    #: GPUs and tasks that the job would get here.
    gpus: int = 0
    tasks: int = 0
    #: CPUs that `cpus_per_gpu` needs at least.
    least_cpus: int = 0
    #: CPUs that the job would get here as things are at the beginning, 0 for none.
    at_first: int = 0

    def of(self, node: StockNode) -> NodeOffer:
        """What `node` can offer, which is in the same state as this one's node."""
        return NodeOffer(
            node,
            self.ask,
            self.weight,
            self.most_gpus,
            self.cpus,
            self.resources,
            self.usable.copy(),
            self.limit.copy(),
            self.gpus,
            self.tasks,
            self.least_cpus,
            self.at_first,
        )


def offer_of(node: StockNode, ask: Ask) -> NodeOffer | None:
    """The node's offer before any is compared; None where it cannot hold a part of the job."""
    known = _offer(node.machine, node.free, node.cores, node.weight, ask)
    return None if known is None else known.of(node)


@lru_cache(maxsize=1 << 16)
def _offer(
    machine: StockMachine, free: int, cores: tuple[int, ...], weight: int, ask: Ask
) -> NodeOffer | None:
    """The offer of any node in this state; many nodes are alike, at many moments."""
    count, gpus, least = sum(cores), free.bit_count(), max(ask.per_node, 1)
    most = min(ask.gpus, count // ask.cpus_per_gpu) if ask.cpus_per_gpu else ask.gpus
    if count < ask.cpus_per_task or gpus < least or most < least:
        return None
    pairs = zip(machine.sockets, cores, strict=True)
    near = gpus - sum((mask & free).bit_count() for mask, has in pairs if not has)
    node = StockNode("", machine, free, cores, weight)
    rank = weight << 8 | _MOST_NEAR - min(near, most)
    offer = NodeOffer(node, ask, rank, most, count, count + gpus, list(cores))
    offer.at_first = cpus_offered(offer, is_first_pass=True, got=0, nodes_left=ask.least_nodes)
    return offer


def cpus_offered(offer: NodeOffer, *, is_first_pass: bool, got: int, nodes_left: int) -> int:
    """The CPUs that the job would get here, 0 for none; notes GPUs and cores in the offer.

    The first pass insists on GPUs beside the job's cores. `got` are GPUs of nodes chosen already,
    `nodes_left` nodes still to choose, this one included.
    """
    ask, most = offer.ask, _most_gpus(offer, got, max(nodes_left, 1))
    if ask.per_node > most:
        return 0
    left, sockets = list(offer.usable), _Sockets()
    sockets.go_through(offer, left, most, is_first_pass=is_first_pass)
    cpus, gpus = sockets.cpus, min(sockets.gpus, most)
    if ask.cpus_per_gpu:
        gpus = min(gpus, cpus // ask.cpus_per_gpu)
    if not gpus or ask.per_node > gpus:
        return 0
    if is_first_pass:
        cpus = min(cpus, sockets.leave_others(offer, left))
    tasks, cores = _tasks(offer, gpus, sockets.total)
    if not tasks or cores > sockets.total:
        return 0
    cpus = min(cpus, sockets.spare(offer, left, cores, with_others=not is_first_pass))
    free = offer.node.free.bit_count()
    if ask.cpus_per_gpu:
        free = min(free, cpus // ask.cpus_per_gpu)
        if ask.per_node > free:
            return 0
    offer.gpus, offer.tasks, offer.limit = min(gpus, free), tasks, left
    offer.least_cpus = cores if ask.cpus_per_gpu else 0
    return cpus if ask.cpus_per_gpu else min(cpus, tasks * ask.cpus_per_task)


def _tasks(offer: NodeOffer, gpus: int, cores: int) -> tuple[int, int]:
    """Tasks that these GPUs and cores have room for, and the cores that these need."""
    ask = offer.ask
    tasks, per_task = offer.cpus // ask.cpus_per_task, ask.cpus_per_task
    if ask.cpus_per_gpu:
        tasks = max(min(tasks, ask.cpus_per_gpu * gpus // per_task), min(tasks, 1))
    tasks = min(tasks, cores // per_task)
    if not ask.cpus_per_gpu:
        return tasks, tasks * per_task
    by_gpus = ask.cpus_per_gpu * (ask.per_node or gpus)
    return min(by_gpus, tasks), max(tasks * per_task, by_gpus)


def _most_gpus(offer: NodeOffer, got: int, nodes_left: int) -> int:
    """GPUs that this node may give: each node still to come needs one of a total."""
    ask = offer.ask
    if not ask.is_total:
        return offer.most_gpus
    rest = ask.gpus - got - (nodes_left - 1) if got < ask.gpus else 1
    return min(rest, offer.most_gpus) if rest > 0 else offer.most_gpus


class _Sockets:
    """The sockets of one node that a job needs for its GPUs."""

    def __init__(self) -> None:
        self.needed: set[int] = set()
        #: GPUs found, CPUs the job may have, and free cores of all sockets.
        self.gpus = self.cpus = self.total = 0

    def go_through(
        self, offer: NodeOffer, left: list[int], most: int, *, is_first_pass: bool
    ) -> None:
        """Takes sockets, most free cores first, until they have GPUs enough. Changes `left`."""
        node, ask = offer.node, offer.ask
        self.cpus, cores = offer.cpus, sum(left)
        anywhere = self.gpus = (node.machine.anywhere & node.free).bit_count()
        is_enough = False
        for socket in sorted(range(len(left)), key=lambda socket: -left[socket]):
            here = (node.machine.sockets[socket] & node.free).bit_count()
            if is_first_pass and ask.cpus_per_gpu:
                here = min(here, left[socket] // ask.cpus_per_gpu)
            if is_first_pass and not anywhere + here and cores > ask.cpus_per_task:
                gone = min(left[socket], cores - ask.cpus_per_task)
                left[socket] -= gone
                offer.usable[socket] -= gone
                cores -= gone
                self.cpus = min(self.cpus, cores)
            self.total += left[socket]
            if is_first_pass and not left[socket]:
                continue
            self.gpus += here
            if (not is_enough and here) or anywhere:
                self.needed.add(socket)
            is_enough = is_enough or self.gpus >= most

    def leave_others(self, offer: NodeOffer, left: list[int]) -> int:
        """Leaves all cores of sockets whose GPUs are not needed; how many cores there are."""
        for socket in range(len(left)):
            if socket not in self.needed:
                self.total -= left[socket]
                offer.usable[socket] = left[socket] = 0
        return self.total

    def spare(self, offer: NodeOffer, left: list[int], cores: int, *, with_others: bool) -> int:
        """Leaves cores beyond `cores`, in turn from the socket that has most; how many remain.

        `with_others`: first those of sockets whose GPUs are not needed.
        """
        for socket in range(len(left)) if with_others else ():
            if socket not in self.needed:
                self._leave(offer, left, socket, min(self.total - cores, left[socket]))
        while self.total > cores:
            held = [socket for socket in sorted(self.needed) if left[socket]]
            if not held:
                break
            self._leave(offer, left, max(held, key=lambda socket: left[socket]), 1)
        return self.total

    def _leave(self, offer: NodeOffer, left: list[int], socket: int, cores: int) -> None:
        left[socket] -= cores
        self.total -= cores
        if cores and not left[socket]:
            offer.usable[socket] = 0


def add(offer: NodeOffer, cpus: int, got: int, tasks: int) -> tuple[int, int] | None:
    """CPUs and GPUs that a job of so many GPUs in all (`--gpus`) takes of a node.

    `tasks` are those that may run here. None where it has too few CPUs for them.
    """
    ask, gpus, by_gpus = offer.ask, offer.gpus, 0
    least = ask.cpus_per_task * min(max(min(tasks, cpus // ask.cpus_per_task), 1), offer.tasks)
    if cpus < least:
        return None
    if ask.cpus_per_gpu:
        gpus = min(gpus, cpus // ask.cpus_per_gpu)
        by_gpus = gpus * ask.cpus_per_gpu
    if ask.gpus > got:
        gpus = min(ask.gpus - got, gpus)
    gpus = offer.gpus = max(gpus, 1)
    return (by_gpus if least < by_gpus < cpus else cpus), gpus
