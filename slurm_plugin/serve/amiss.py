"""What is wrong with an engine that answers: nodes it leaves to Slurm, folders it may not write."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from slurm_plugin.decide.kept_nodes import KeptNodes
from slurm_plugin.decide.machines import UNDECLARED, Machines, usable
from slurm_plugin.queue.snapshot import Snapshot

#: Why a node is left to Slurm of which gputopo.yaml says nothing.
NOT_DECLARED = UNDECLARED.problem
_WRITE = os.W_OK | os.X_OK


def gpus_of_nodes(told: KeptNodes | None, seen: Snapshot | None) -> Mapping[str, int]:
    """How many GPUs Slurm's nodes have: as slurmctld told them, else as they were read last."""
    if told is not None:
        return dict(zip(told.told.names, told.told.total, strict=True))
    return {} if seen is None else {node.name: node.gpu_count for node in seen.nodes}


def left_to_slurm(machines: Machines, gpus: Mapping[str, int]) -> dict[str, str]:
    """The nodes on which no GPUs are chosen, and why; `gpus`: of Slurm's nodes, as far as known."""
    left = {name: machine.problem for name, machine in machines.items() if machine.problem}
    for name, count in gpus.items():
        if count and (problem := usable(machines.get(name, UNDECLARED), count)):
            left[name] = problem
    return left


def not_writable(folders: Iterable[Path], log: Path) -> list[str]:
    """The folders in which this process may not write, nor make them where they are missing.

    And the decision log, where it is there and may not be appended to.
    """
    lost = [str(one) for one in dict.fromkeys(folders) if not os.access(_there(one), _WRITE)]
    if os.path.lexists(log) and not (log.is_file() and os.access(log, os.W_OK)):
        lost.append(str(log))
    return lost


def _there(folder: Path) -> Path:
    """The folder, or what there is of the way to it."""
    # Not Path.exists: what is in a closed folder it takes for an error.
    return next(one for one in (folder, *folder.parents) if os.path.exists(one))
