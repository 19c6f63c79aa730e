"""Which node is which machine: topology and index mapping per node, or why there is none.

A node with a `problem` is left to Slurm's own choice; `gputopo doctor` and `status` name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from gres_topology import NodeTopology, cpulist
from gres_topology.slices import SlicedTopology, profile_of
from policies.slices import SharesRoom


@dataclass(frozen=True, slots=True)
class Machine:
    """One node's hardware as the engine uses it."""

    #: None only where there is a problem.
    topology: NodeTopology | None
    #: The topology's index of each of Slurm's GPUs; None where both count alike. A slice has that
    #: of the GPU it is of.
    order: tuple[int, ...] | None = None
    #: Why the node is left to Slurm; empty where it is not.
    problem: str = ""
    #: The same node as jobs of MIG slices see it, in Slurm's order; None where it has no slices.
    sliced: Machine | None = None
    #: Which of Slurm's GPUs are whole (mask); -1: all.
    whole: int = -1
    #: The NVLink domain over several nodes that it was found in; '' for none, None: not known.
    domain: str | None = None
    _masks: dict[int, int] = field(default_factory=dict, repr=False, compare=False)

    def to_topology(self, mask: int) -> int:
        """Slurm's mask in the topology's indices; slices are left out."""
        if self.order is None:
            return mask
        mask &= self.whole
        # Nodes of one kind share the Machine, so that few masks come again and again.
        found = self._masks.get(mask)
        if found is None:
            found = sum(1 << t for s, t in enumerate(self.order) if mask >> s & 1)
            if len(self._masks) < 65_536:
                self._masks[mask] = found
        return found

    def free(self, mask: int) -> int:
        """Slurm's free GPUs (mask) that a policy may choose: by the topology's index, none broken.

        The driver may have lost a broken GPU, or give it to a job that fails there; where nothing
        else fits, `Decider` offers it all the same.
        """
        return self.to_topology(mask) & ~(self.topology.broken if self.topology else 0)

    def room(self, idle: int, left: Sequence[int]) -> SharesRoom:
        """Idle GPUs (mask) and shares left by Slurm's index, in the topology's."""
        counts = list(left)
        for index, gpu in enumerate(self.order or ()):
            counts[gpu] = left[index]
        return SharesRoom(self.free(idle), tuple(counts))

    def to_slurm(self, gpus: Iterable[int]) -> tuple[int, ...]:
        """The topology's GPUs in Slurm's indices, the order kept."""
        if self.order is None:
            return tuple(gpus)
        return tuple(self.order.index(gpu) for gpu in gpus)

    def seen_by(self, profile: str) -> Machine:
        """The node for a job of slices of this profile; '' for one of whole GPUs."""
        return (self.sliced or _NOT_SLICED) if profile else self

    @property
    def only_profile(self) -> str:
        """The profile of all that Slurm counts there; '' where there are several, or whole GPUs."""
        sliced = self.sliced.topology if self.sliced else None
        profiles = sliced.of_profile if isinstance(sliced, SlicedTopology) else ()
        return next(iter(profiles)) if len(profiles) == 1 else ""

    @property
    def names(self) -> list[str | int]:
        """What Slurm calls each of the topology's GPUs: its index, or its slices' (`6-7`)."""
        count = 0 if self.topology is None else self.topology.gpus
        return names_of(self.order or range(count), count)


def names_of(order: Sequence[int], gpus: int) -> list[str | int]:
    """`Machine.names`, from its order and how many GPUs its topology has."""
    own: list[list[int]] = [[] for _ in range(gpus)]
    for index, gpu in enumerate(order):
        own[gpu].append(index)
    return [held[0] if len(held) == 1 else cpulist.format_list(held) for held in own]


_NOT_SLICED = Machine(None, problem="no slices are declared for it in gputopo.yaml")

#: Nodes, and domains, named one by one.
_FEW = 4
#: Where slices are declared.
_SLICES = "slices: in gputopo.yaml"

#: What an undeclared node is.
UNDECLARED = Machine(None, problem="not declared in gputopo.yaml")

Machines = Mapping[str, Machine]


class SeenBy(Mapping[str, Machine]):
    """Machines as jobs of MIG slices of one profile see them."""

    def __init__(self, machines: Machines, profile: str) -> None:
        self._machines, self._profile = machines, profile

    def __getitem__(self, name: str) -> Machine:
        return self._machines[name].seen_by(self._profile)

    def __iter__(self) -> Iterator[str]:
        return iter(self._machines)

    def __len__(self) -> int:
        return len(self._machines)


def nvlink(machines: Machines, nodes: Iterable[str]) -> str:
    """How a job's nodes are joined by NVLink, in words.

    '' where that is nothing between nodes, or not known of one of them.
    """
    joined: dict[str, list[str]] = {}
    for name in nodes:
        domain = machines.get(name, UNDECLARED).domain
        if domain is None:
            return ""
        joined.setdefault(domain, []).append(name)
    if sum(map(len, joined.values())) < 2 or not any(joined):
        return ""
    if len(joined) == 1:
        return f"its nodes are of one NVLink domain, {next(iter(joined))}"
    parts = [f"{_few(names)} in {domain or 'none'}" for domain, names in joined.items()]
    return f"its nodes are of no one NVLink domain: {_few(parts, '; ')}"


def _few(words: Sequence[str], between: str = ", ") -> str:
    """The first four, and how many more there are."""
    more = f" and {len(words) - _FEW} more" if len(words) > _FEW else ""
    return between.join(words[:_FEW]) + more


def profile_for(kind: str, nodes: Iterable[str], machines: Machines) -> str:
    """The profile that a job of this GRES type means on these nodes; '' for whole GPUs.

    A type need not name it where there is no other: AMD's partitions, as gpu/rsmi finds them, have
    the type of the GPU.
    """
    if profile := profile_of(kind):
        return profile
    profiles = {machines.get(name, UNDECLARED).only_profile for name in nodes}
    return profiles.pop() if len(profiles) == 1 else ""


def are_same(one: Machines, other: Machines) -> bool:
    """Whether every node is the same machine in both, to the last link."""
    if one.keys() != other.keys():
        return False
    # Few machines serve many nodes.
    pairs = {
        (id(machine), id(other[name])): (machine, other[name]) for name, machine in one.items()
    }
    return all(a == b and _links(a) == _links(b) for a, b in pairs.values())


def _links(machine: Machine) -> str:
    return machine.topology.shape if machine.topology else ""


def usable(machine: Machine, total: int) -> str:
    """Why a node of `total` GPUs is left to Slurm's own choice; empty if it is not."""
    if machine.problem or machine.topology is None:
        return machine.problem or "no topology"
    is_sliced = machine.sliced is not None or isinstance(machine.topology, SlicedTopology)
    known = len(machine.order) if machine.order else machine.topology.gpus
    if known != total:
        return f"Slurm says {total} GPUs, {_SLICES if is_sliced else 'the topology'} {known}"
    return ""


def other_gpus(machine: Machine, counts: Mapping[str, int]) -> str:
    """What Slurm's GPUs (types in its order, with their counts) are otherwise than declared."""
    total, topology = sum(counts.values()), machine.topology
    if machine.sliced is None or not isinstance(machine.sliced.topology, SlicedTopology):
        known = 0 if topology is None else topology.gpus
        name = "" if topology is None else topology.name
        return "" if known == total else f"Slurm has {total} GPUs, its topology {name} {known}"
    declared = machine.sliced.topology.profiles
    counted = [profile_of(kind) for kind, count in counts.items() for _ in range(count)]
    if tuple(counted) == declared or (
        machine.only_profile and not any(counted) and total == len(declared)
    ):
        return ""
    listed = ", ".join(f"{count} {kind or 'of no type'}" for kind, count in counts.items())
    said = ", ".join(f"{len([*run])} {kind or 'whole'}" for kind, run in groupby(declared))
    return f"Slurm counts {listed}; {_SLICES} says {said}"


def impaired_parts(machine: Machine) -> list[str]:
    """What is marked on a node, with why; GPUs are called as Slurm counts them."""
    topology, names = machine.topology, machine.names
    if isinstance(topology, SlicedTopology):
        topology, names = topology.whole, []
    if topology is None:
        return []
    return [one.text(names) + (f": {one.why}" if one.why else "") for one in topology.impairments]


def not_of(machine: Machine, own: int, profile: str) -> str:
    """Why Slurm's own choice (mask) cannot be what the job asks for by gputopo.yaml; or empty."""
    if profile and isinstance(machine.topology, SlicedTopology):
        wrong = own & ~machine.topology.of_profile.get(profile, 0)
    else:
        wrong = own & ~machine.whole
    if not wrong:
        return ""
    index = (wrong & -wrong).bit_length() - 1
    what = f"{profile} slice" if profile else "whole GPU"
    return f"Slurm's GPU {index} is no {what} by {_SLICES}"
