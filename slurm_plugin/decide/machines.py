"""Which node is which machine: topology and index mapping per node, or why there is none.

A node with a `problem` is left to Slurm's own choice; `gputopo doctor` and `status` name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gres_topology import NodeTopology


@dataclass(frozen=True, slots=True)
class Machine:
    """One node's hardware as the engine uses it."""

    #: None only where there is a problem.
    topology: NodeTopology | None
    #: The topology's index of each of Slurm's GPUs; None where both count alike.
    order: tuple[int, ...] | None = None
    #: Why the node is left to Slurm; empty where it is not.
    problem: str = ""
    _masks: dict[int, int] = field(default_factory=dict, repr=False, compare=False)

    def to_topology(self, mask: int) -> int:
        """Slurm's mask in the topology's indices."""
        if self.order is None:
            return mask
        # Nodes of one kind share the Machine, so that few masks come again and again.
        found = self._masks.get(mask)
        if found is None:
            found = sum(1 << t for s, t in enumerate(self.order) if mask >> s & 1)
            if len(self._masks) < 65_536:
                self._masks[mask] = found
        return found

    def to_slurm(self, gpus: Iterable[int]) -> tuple[int, ...]:
        """The topology's GPUs in Slurm's indices, the order kept."""
        if self.order is None:
            return tuple(gpus)
        return tuple(self.order.index(gpu) for gpu in gpus)


#: What an undeclared node is.
UNDECLARED = Machine(None, problem="not declared in gputopo.yaml")

Machines = Mapping[str, Machine]


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
    if machine.topology.gpus != total:
        return f"Slurm says {total} GPUs, the topology {machine.topology.gpus}"
    return ""
