"""Which nodes are alike, and the slots of each of their sockets."""

from __future__ import annotations

from policies.best_fit import domains
from slurm_plugin.decide.machines import Machines, mask_of


class NodeKinds:
    """Asked by the name of a node."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._sockets: dict[str, tuple[int, ...]] = {}

    def __call__(self, name: str) -> tuple[str, tuple[int, ...]]:
        """The kind of a node, and a mask of slots for each socket; empty where not known."""
        machine = self._machines.get(name)
        if machine is None or machine.topology is None:
            return "", ()
        kind = f"{machine.topology.shape} {machine.order}"
        if kind not in self._sockets:
            is_known = None not in machine.topology.numa
            masks = domains(machine.topology) if is_known else []
            gpus = [[i for i in range(mask.bit_length()) if mask >> i & 1] for mask in masks]
            self._sockets[kind] = tuple(mask_of(machine.to_slurm(some)) for some in gpus)
        return kind, self._sockets[kind]
