"""Slurm's GPU index and the topology's: three ways to know, never a guess.

Slurm counts GPUs in the order of the File= entries of gres.conf; NVML counts by PCI address;
/dev/nvidiaN counts by the driver's probing. They may all differ on one node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gres_topology.errors import TopologyError
from gres_topology.topology import NodeTopology


@dataclass(frozen=True, slots=True)
class SlurmIndex:
    """A permutation: `to_topology[i]` is the topology's index of Slurm's GPU i.

    Raises TopologyError if it is not a permutation of 0 .. n-1.
    """

    to_topology: tuple[int, ...]

    def __post_init__(self) -> None:
        if sorted(self.to_topology) != list(range(len(self.to_topology))):
            raise TopologyError(
                f"index mapping {list(self.to_topology)}: expected each of"
                f" 0..{len(self.to_topology) - 1} once"
            )


def identity(topology: NodeTopology) -> SlurmIndex:
    """Slurm's GPU i is the topology's GPU i, as the administrator states."""
    return SlurmIndex(tuple(range(topology.gpus)))


def explicit(topology: NodeTopology, permutation: Sequence[int]) -> SlurmIndex:
    """The administrator's own permutation. TopologyError if its length is not the GPU count."""
    if len(permutation) != topology.gpus:
        raise TopologyError(
            f"{topology.name}: slurm_index has {len(permutation)} entries;"
            f" expected one for each of {topology.gpus} GPUs"
        )
    return SlurmIndex(tuple(permutation))


def from_gres_conf(topology: NodeTopology, files: Iterable[str]) -> SlurmIndex:
    """From the device files in gres.conf's order and the minors the topology knows.

    `files` are paths that end in the device's minor (`/dev/nvidia3`). Raises TopologyError
    if minors are unknown or repeated, or if files and GPUs do not match one to one.
    """
    paths = list(files)
    if None in topology.minors:
        gpu = topology.minors.index(None)
        raise TopologyError(
            f"{topology.name}: device minor of GPU{gpu} is unknown, so"
            " gres.conf's order says nothing; state slurm_index: identity or a permutation"
        )
    by_minor = {minor: gpu for gpu, minor in enumerate(topology.minors)}
    if len(by_minor) < topology.gpus:
        raise TopologyError(f"{topology.name}: device minors {list(topology.minors)} repeat")
    if len(paths) != topology.gpus:
        raise TopologyError(
            f"{topology.name}: gres.conf has {len(paths)} device files for {topology.gpus} GPUs"
        )
    return SlurmIndex(tuple(_gpu_of(path, by_minor, topology) for path in paths))


def _gpu_of(path: str, by_minor: dict[int | None, int], topology: NodeTopology) -> int:
    match = re.fullmatch(r"(?:\S*\D)?(\d{1,5})", path)
    if match is None or int(match.group(1)) not in by_minor:
        raise TopologyError(
            f"{topology.name}: device file {path} is no GPU's;"
            f" expected minors {sorted(m for m in by_minor if m is not None)}"
        )
    return by_minor[int(match.group(1))]
