"""best-fit: bin packing, the most used domain first (TOPO-AWARE's baseline BF, SC'17).

A domain is a NUMA node where the topology names them, else an island of GPUs joined by
links wider than the node's narrowest. Fullest node first, then the fullest domain that
still has room; a job too big for one domain takes the emptiest first, to span few.
"""

from __future__ import annotations

from gres_topology import NodeTopology
from policies.contract.assign import assign
from policies.contract.bits import gpus_of, mask_of
from policies.contract.nouns import Cluster, NodeState, Placement, Request, Wait
from policies.contract.policy import Policy
from policies.contract.ranking import Key
from policies.scoring.measure import measured

#: The domains of each shape of node; of so many shapes all are forgotten.
_known: dict[str, tuple[int, ...]] = {}
_MOST_KNOWN = 256


def domains(topology: NodeTopology) -> tuple[int, ...]:
    """The node's GPUs cut into domains, as masks that cover each GPU once."""
    cut = _known.get(topology.shape)
    if cut is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        cut = _known[topology.shape] = _cut(topology)
    return cut


def _cut(topology: NodeTopology) -> tuple[int, ...]:
    if None not in topology.numa and topology.gpus:
        by_numa: dict[int | None, int] = {}
        for gpu, numa in enumerate(topology.numa):
            by_numa[numa] = by_numa.get(numa, 0) | 1 << gpu
        return tuple(by_numa.values())
    return tuple(_islands(topology))


def _islands(topology: NodeTopology) -> list[int]:
    n = topology.gpus
    links = topology.bandwidth_gbps
    narrowest = min((links[i, j] for i in range(n) for j in range(i)), default=0.0)
    masks: list[int] = []
    for gpu in range(n):
        near = 1 << gpu | mask_of(j for j in range(n) if links[gpu, j] > narrowest)
        for mask in [mask for mask in masks if mask & near]:
            masks.remove(mask)
            near |= mask
        masks.append(near)
    return masks


def _pick(state: NodeState, count: int) -> tuple[int, ...]:
    free = [domain & state.free for domain in domains(state.topology) if domain & state.free]
    roomy = [mask for mask in free if mask.bit_count() >= count]
    if roomy:
        return gpus_of(min(roomy, key=lambda mask: (mask.bit_count(), gpus_of(mask))))[:count]
    free.sort(key=lambda mask: (-mask.bit_count(), gpus_of(mask)))
    gpus = [gpu for mask in free for gpu in gpus_of(mask)]
    return tuple(sorted(gpus[:count]))


class BestFit(Policy):
    """Packs: the most used node that fits, and in it the most used domain."""

    name = "best-fit"

    def place(self, request: Request, cluster: Cluster) -> Placement | Wait:
        """Choose GPUs for one job that fits."""

        def key(state: NodeState, count: int) -> Key:
            return (state.free.bit_count(),)

        pairs = assign(request.gpus_per_node, cluster.nodes, key, kind=self.name)
        gpus = {state.name: _pick(state, count) for state, count in pairs}
        reason = "the most used nodes and domains with room"
        return measured(gpus, request, cluster, self.name, reason)
