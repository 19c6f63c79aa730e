"""Slurm's GPU index and the topology's: stated or read from gres.conf, never guessed.

Slurm counts GPUs in the order of the File= entries of gres.conf; NVML counts by PCI address;
/dev/nvidiaN counts by the driver's probing. They may all differ on one node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gres_topology.errors import TopologyError
from gres_topology.topology import NodeTopology

#: The topology's index of each of Slurm's GPUs.
SlurmIndex = tuple[int, ...]


def _permutation(gpus: Iterable[int]) -> SlurmIndex:
    index = tuple(gpus)
    if sorted(index) != list(range(len(index))):
        raise TopologyError(
            f"index mapping {list(index)}: expected each of 0..{len(index) - 1} once"
        )
    return index


def explicit(topology: NodeTopology, permutation: Sequence[int]) -> SlurmIndex:
    """What the administrator states; TopologyError unless it names each of the node's GPUs once."""
    if len(permutation) != topology.gpus:
        raise TopologyError(
            f"{topology.name}: slurm_index has {len(permutation)} entries;"
            f" expected one for each of {topology.gpus} GPUs"
        )
    return _permutation(permutation)


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
    return _permutation(_gpu_of(path, by_minor, topology) for path in paths)


def _gpu_of(path: str, by_minor: dict[int | None, int], topology: NodeTopology) -> int:
    match = re.fullmatch(r"(?:\S*\D)?(\d{1,5})", path)
    if match is None or int(match.group(1)) not in by_minor:
        raise TopologyError(
            f"{topology.name}: device file {path} is no GPU's;"
            f" expected minors {sorted(m for m in by_minor if m is not None)}"
        )
    return by_minor[int(match.group(1))]
