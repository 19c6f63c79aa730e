"""Fragmentation and stranded GPUs of Slurm's nodes and jobs; `policies.fragmentation` defines both.

A job may run on a node by its partitions, node lists, features and GPU types. Whether it could
start there now goes by free GPUs, CPUs and memory. Down and drained nodes have nothing free. Where
Slurm keeps a job of several nodes in one block, a node is of use to it only beside enough others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from functools import cache, partial

from gres_topology import Network
from gres_topology.features import Unsupported
from policies import fragmentation
from policies.fragmentation import Fragmentation
from slurm_plugin.queue.candidates import Need, fits, may_use
from slurm_plugin.queue.capacity import Nodes
from slurm_plugin.queue.slurms_choice import most_together, rooms
from slurm_plugin.slurm.interface import QueuedJob

#: Different requests looked at, the most common first: the rest of a long queue repeats them.
MAX_KINDS = 256


def fragmentation_of(
    nodes: Nodes,
    waiting: Iterable[Need],
    usual: Mapping[Need, int],
    network_of: Callable[[Need], Network | None] = lambda need: None,
) -> Fragmentation:
    """The figures of these nodes.

    `waiting` is what the jobs need that wait for nothing but GPUs, CPUs or memory; `usual` is
    what `usual_requests` says of those that run; `network_of` is that within whose units Slurm
    keeps such a job, None where any nodes will do.
    """
    free = {n.name: n.free.bit_count() if n.is_open else 0 for n in nodes.values()}

    @cache
    def beside_others(need: Need) -> Set[str] | None:
        """Where so many nodes are of use as the job needs, and Slurm may give them to it.

        None where each node counts by itself.
        """
        network = network_of(need) if need.nodes > 1 else None
        if network is None:
            return None
        found = set[str]()
        for room in rooms(need, nodes, network):
            ready = {name for name, node in room.items() if fits(need, node)}
            found |= ready if len(ready) >= need.nodes else set()
        return found

    def verdict(need: Need, name: str) -> bool | None:
        node = nodes[name]
        try:
            if not may_use(need, node):
                return None
            together = beside_others(need)
            return fits(need, node) if together is None else name in together
        except Unsupported:
            # A constraint that cannot be judged keeps the job from no node.
            return verdict(replace(need, features=""), name)

    kinds = Counter(need for need in waiting if need.gpus)
    common = dict(kinds.most_common(MAX_KINDS))
    total = sum(len(node.gpu_types) for node in nodes.values())
    most = partial(most_together, network_of(Need(1)))
    return fragmentation.fragmentation_of(free, common, usual, verdict, total, most)


def usual_requests(jobs: Iterable[QueuedJob]) -> dict[Need, int]:
    """What jobs like those that hold GPUs need of each node, and how many hold as much."""
    held: Counter[Need] = Counter()
    for job in jobs:
        if job.state != "PENDING" and (gpus := max(map(len, job.gpus.values()), default=0)):
            held[Need(gpus, partitions=frozenset(job.partition.split(",")))] += 1
    return dict(held.most_common(MAX_KINDS))
