"""MIG slices by the GPU they are of: GPUs in use are filled before another one is begun.

No GPU is begun while those in use have room. Of those that are begun, and of those that are filled,
the one that is joined least to GPUs nobody uses goes first: pairs on one NVLink stay whole, and a
GPU whose partner is free becomes free with it. Then a job's slices are on as few GPUs, and leave as
little room in them, as can be. The same goes for the choice of the node. Jobs of every policy get
slices in this way: no link joins them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gres_topology.slices import SlicedTopology
from policies.contract.assign import assign_ranked
from policies.contract.bits import gpus_of, lowest_bits, mask_of
from policies.contract.nouns import Cluster, NodeState, Placement, Request, Wait
from policies.contract.policy import Policy
from policies.contract.ranking import Key

#: The option of a request that names the profile; no user may write it.
PROFILE = "slice"


class Choice(NamedTuple):
    """Slices of one node, and what they are ranked by among those of others: smaller is better."""

    devices: int
    key: Key


def choose(topology: SlicedTopology, free: int, profile: str, count: int) -> Choice | None:
    """`count` slices of a profile among the free devices (mask); None where there are too few."""
    typed = topology.of_profile.get(profile, 0) & free
    if typed.bit_count() < count:
        return None
    devices = topology.devices_of
    untouched = {gpu for gpu, mask in enumerate(devices) if mask & free == mask}
    is_idle = len(untouched) == topology.whole.gpus
    room = {gpu: mask & typed for gpu, mask in enumerate(devices) if mask & typed}
    taken, touched, parents, begun, lost_gbps, near_gbps = 0, 0, 0, 0, 0.0, 0.0
    while taken.bit_count() < count:
        left = count - taken.bit_count()
        gpu = _next(topology, free, room, untouched, left)
        if gpu in untouched:
            untouched.remove(gpu)
            begun += 1
            lost_gbps += _joined(topology, gpu, untouched)
        else:
            near_gbps += _joined(topology, gpu, untouched)
        taken |= lowest_bits(room.pop(gpu), left)
        touched |= devices[gpu]
        parents += 1
    spare = (touched & free & ~taken).bit_count()
    idle = begun and is_idle
    return Choice(taken, (begun, idle, lost_gbps, near_gbps, parents, spare, len(untouched)))


def _next(
    topology: SlicedTopology, free: int, room: Mapping[int, int], untouched: set[int], left: int
) -> int:
    """The GPU to take slices of: one that has room for all that is left, else the roomiest."""
    used = [gpu for gpu in room if gpu not in untouched]

    def rank(gpu: int) -> tuple[float, ...]:
        has = room[gpu].bit_count()
        joined = _joined(topology, gpu, untouched)
        spare = (topology.devices_of[gpu] & free).bit_count()
        return (0, joined, spare, gpu) if has >= left else (1, -has, joined, spare, gpu)

    return min(used or room, key=rank)


def _joined(topology: SlicedTopology, gpu: int, others: set[int]) -> float:
    """GB/s between a GPU and others, itself left out."""
    return sum(topology.joined_gbps[gpu][other] for other in others)


class Slices(Policy):
    """Fills the GPUs in use; asked for jobs of slices, whatever policy decides about GPUs."""

    name = "slices"

    def place(self, request: Request, cluster: Cluster) -> Placement | Wait:
        """Choose slices of the profile that the request's options name."""
        profile = request.options[PROFILE]

        def keys(states: list[NodeState], count: int) -> list[Key | None]:
            found = (choose(_sliced(state), state.free, profile, count) for state in states)
            return [choice and choice.key for choice in found]

        pairs = assign_ranked(
            request.gpus_per_node,
            cluster.nodes,
            keys,
            kind=(self.name, profile),
            network=cluster.network,
        )
        gpus: dict[str, tuple[int, ...]] = {}
        begun = 0
        for state, count in pairs:
            topology = _sliced(state)
            choice = choose(topology, state.free, profile, count)
            assert choice is not None, f"{state.name} was ranked without room"
            gpus[state.name] = gpus_of(choice.devices)
            begun += int(choice.key[0])
        where = "GPUs in use" if not begun else f"{begun} GPU{'s' * (begun > 1)} begun"
        return Placement(gpus, self.name, f"{profile} by GPU: {where}")


def by_gpu(states: Mapping[str, NodeState], placement: Placement) -> dict[str, Any]:
    """What a choice means: each slice's GPU, how many GPUs it begins, how many stay untouched.

    `states` are the nodes before the job; `untouched` counts those of the nodes that are used.
    """
    parents, before, after = {}, 0, 0
    for name, devices in placement.gpus.items():
        topology, free = _sliced(states[name]), states[name].free
        parents[name] = [topology.parents[device] for device in devices]
        before += topology.untouched(free)
        after += topology.untouched(free & ~mask_of(devices))
    return {"of_gpus": parents, "begun": before - after, "untouched": after}


def as_taken(masks: Mapping[str, int]) -> Placement:
    """What Slurm itself would have taken (masks by node), as a placement."""
    return Placement({name: gpus_of(mask) for name, mask in masks.items()}, "slurm", "")


def _sliced(state: NodeState) -> SlicedTopology:
    assert isinstance(state.topology, SlicedTopology), f"{state.name} has no slices"
    return state.topology
