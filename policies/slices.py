"""MIG slices, shards and MPS by the GPU they are of: GPUs in use are filled first.

No GPU is begun while those in use have room. Of those that are begun, and of those that are filled,
the one that is joined least to GPUs nobody uses goes first: pairs on one NVLink stay whole, and a
GPU whose partner is free becomes free with it. Then a job's slices are on as few GPUs, and leave as
little room in them, as can be. The same goes for the choice of the node. Jobs of every policy get
slices in this way: no link joins them. A job's shares (shards, MPS) are of one GPU of a node, as
Slurm has it; of the GPUs in use that one goes first whose jobs slow the new one, and are slowed by
it, the least.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from gres_topology import NodeTopology
from gres_topology.slices import SlicedTopology
from policies.contract.assign import assign_ranked
from policies.contract.bits import gpus_of, lowest_bits, mask_of
from policies.contract.interference import (
    Interference,
    Kind,
    kind_of_request,
    kind_of_running,
)
from policies.contract.nodes import candidates
from policies.contract.nouns import Cluster, NodeState, Placement, Request, RunningJob, Wait
from policies.contract.policy import Policy
from policies.contract.ranking import Key, each
from policies.errors import PolicyError

#: The option of a request that names the profile; no user may write it.
PROFILE = "slice"
#: Choices for shares that are remembered, some 1 KB each.
REMEMBERED = 4096
_CHOSEN: dict[tuple[str, int, SharesRoom], SliceChoice | None] = {}


class SliceChoice(NamedTuple):
    """Slices of one node, and what they are ranked by among those of others: smaller is better."""

    devices: int
    key: Key


def choose(topology: SlicedTopology, free: int, profile: str, count: int) -> SliceChoice | None:
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
            lost_gbps += _joined(topology.whole, gpu, untouched)
        else:
            near_gbps += _joined(topology.whole, gpu, untouched)
        taken |= lowest_bits(room.pop(gpu), left)
        touched |= devices[gpu]
        parents += 1
    spare = (touched & free & ~taken).bit_count()
    idle = begun and is_idle
    return SliceChoice(taken, (begun, idle, lost_gbps, near_gbps, parents, spare, len(untouched)))


def _next(
    topology: SlicedTopology, free: int, room: Mapping[int, int], untouched: set[int], left: int
) -> int:
    """The GPU to take slices of: one that has room for all that is left, else the roomiest."""
    used = [gpu for gpu in room if gpu not in untouched]

    def rank(gpu: int) -> tuple[float, ...]:
        has = room[gpu].bit_count()
        joined = _joined(topology.whole, gpu, untouched)
        spare = (topology.devices_of[gpu] & free).bit_count()
        return (0, joined, spare, gpu) if has >= left else (1, -has, joined, spare, gpu)

    return min(used or room, key=rank)


def _joined(topology: NodeTopology, gpu: int, others: Iterable[int]) -> float:
    """GB/s between a GPU and others, itself left out."""
    return sum(map(topology.joined_gbps[gpu].__getitem__, others))


class SharesRoom(NamedTuple):
    """What a job could have of a node's GPUs in shares (shards, MPS)."""

    #: The GPUs that nobody uses any part of (mask).
    idle: int
    #: Shares that are left on each GPU.
    left: tuple[int, ...]


def choose_parent(
    topology: NodeTopology, free: int, room: SharesRoom, slowed: Callable[[int], float]
) -> SliceChoice | None:
    """One of the free GPUs (mask) for all of a job's shares; None where there is none.

    `slowed` says how much the job and those on a GPU slow each other, from 1 on.
    """
    untouched = gpus_of(room.idle)
    is_idle = len(untouched) == topology.gpus
    ranked = []
    for gpu in gpus_of(free):
        begun = bool(room.idle >> gpu & 1)
        joined = _joined(topology, gpu, untouched)
        beside = (0.0, 0.0) if begun else (slowed(gpu), joined)
        lost_gbps = joined if begun else 0.0
        key = (begun, begun and is_idle, lost_gbps, *beside, room.left[gpu], len(untouched) - begun)
        ranked.append((key, gpu))
    if not ranked:
        return None
    best, gpu = min(ranked)
    return SliceChoice(1 << gpu, best)


def _choose_alone(topology: NodeTopology, free: int, room: SharesRoom) -> SliceChoice | None:
    """As `choose_parent` where nobody is known to be beside; most nodes are as they were before."""
    key = (topology.shape, free, room)
    if key not in _CHOSEN:
        if len(_CHOSEN) >= REMEMBERED:
            _CHOSEN.clear()
        _CHOSEN[key] = choose_parent(topology, free, room, lambda gpu: 1.0)
    return _CHOSEN[key]


@dataclass(frozen=True)
class Shares(Policy):
    """Fills the GPUs that are shared already, those first whose jobs and the new one get along.

    Made for one question: it says of each node what is left, and which jobs have shares.
    """

    rooms: Mapping[str, SharesRoom]
    #: How many of what the job asks for on each node, in words: `4 shards`.
    what: str
    #: The jobs with shares on a node.
    jobs_on: Callable[[str], Collection[RunningJob]]
    interference: Interference

    name = "shares"

    def place(self, request: Request, cluster: Cluster) -> Placement | Wait:
        """Choose a GPU on each node; what runs on it does not count before GPUs are begun."""
        kind, nodes = kind_of_request(request), candidates(cluster.nodes)
        found = []
        for place in each(nodes.among):
            state = nodes.table.node(place)
            name = state.name
            jobs, room = self.jobs_on(name), self.rooms[name]
            if not jobs:
                choice = _choose_alone(state.topology, state.free, room)
            else:
                beside = [(job.gpus.get(name, 0), kind_of_running(job)) for job in jobs]
                slowed = partial(self._slowed, kind, beside)
                choice = choose_parent(state.topology, state.free, room, slowed)
            if choice is not None:
                heaviness = 10 * state.weight + state.topology.lag_tenths
                found.append((heaviness, choice.key, name, choice.devices))
        chosen = sorted(found)[: len(request.gpus_per_node)]
        if len(chosen) < len(request.gpus_per_node):
            raise PolicyError(f"{len(chosen)} nodes have room for {self.what}")
        begun = sum(bool(key[0]) for _, key, _, _ in chosen)
        where = f"{begun} GPU{'s' * (begun > 1)} begun" if begun else "a GPU in use"
        if (worst := max(key[3] for _, key, _, _ in chosen)) > 1:
            where += f", slowed {worst:.2f} times at most"
        gpus = {name: gpus_of(mask) for _, _, name, mask in chosen}
        return Placement(gpus, self.name, f"{self.what}: {where}")

    def _slowed(self, kind: Kind, beside: Collection[tuple[int, Kind]], gpu: int) -> float:
        """How much the job and the worst of those on a GPU slow each other."""
        factors = [
            max(self.interference.factor(kind, other), self.interference.factor(other, kind))
            for mask, other in beside
            if mask >> gpu & 1
        ]
        return max(factors, default=1.0)

    def of_parents(self, placement: Placement) -> dict[str, Any]:
        """What a choice means: each node's GPU, how many are begun, how many stay untouched."""
        idle = {name: self.rooms[name].idle for name in placement.gpus}
        taken = {name: mask_of(gpus) for name, gpus in placement.gpus.items()}
        begun = sum((taken[name] & idle[name]).bit_count() for name in taken)
        return {
            "of_gpus": {name: list(gpus) for name, gpus in placement.gpus.items()},
            "shares": self.what,
            "begun": begun,
            "untouched": sum(mask.bit_count() for mask in idle.values()) - begun,
        }


class Slices(Policy):
    """Fills the GPUs in use; asked for jobs of slices, whatever policy decides about GPUs."""

    name = "slices"

    def place(self, request: Request, cluster: Cluster) -> Placement | Wait:
        """Choose slices of the profile that the request's options name."""
        profile = request.options[PROFILE]

        def keys(states: list[NodeState], count: int) -> list[Key | None]:
            found = (choose(_sliced(state), state.free, profile, count) for state in states)
            return [
                choice and (state.topology.lag_tenths, *choice.key)
                for state, choice in zip(states, found, strict=True)
            ]

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
