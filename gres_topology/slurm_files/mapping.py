"""Slurm's GPU index and the topology's: stated or read from gres.conf, never guessed.

Slurm counts GPUs in the order of the File= entries of gres.conf, and with AutoDetect in one of its
own; NVML counts by PCI address; /dev/nvidiaN counts by the driver's probing. They may all differ on
one node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gres_topology import pci
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


def from_gres_conf(topology: NodeTopology, files: Iterable[str], detection: str = "") -> SlurmIndex:
    """From the device files in gres.conf's order and the minors the topology knows.

    `files` are paths that end in the device's minor (`/dev/nvidia3`). `detection` is AutoDetect= in
    lower case: with `nvml` and `rsmi` slurmd keeps the order of NVML and of ROCm SMI, which both
    sort by PCI address, with `nvidia` it sorts by device file, whatever gres.conf lists
    (`_merge_system_gres_conf` in Slurm's gres_gpu.c, 22.05 to 26.05; RocmSMI::Initialize in
    rocm_smi_main.cc). With `full` (26.05) it takes the first of these that finds a GPU, which
    depends on the node's libraries (`_gpu_plugin_init_full` in gpu.c): both orders have to be the
    same. Raises TopologyError for other ways of detecting, if minors or addresses are unknown or
    repeated, or if files and GPUs do not match one to one.
    """
    paths = list(files)
    if detection and paths and len(paths) != topology.gpus:
        raise _other_count(topology, paths)
    if detection in ("nvml", "rsmi"):
        return _by_address(topology, detection)
    if detection not in ("", "nvidia", "full"):
        raise TopologyError(
            f"{topology.name}: with AutoDetect={detection} gres.conf does not tell Slurm's order;"
            " state slurm_index: identity or a permutation"
        )
    by_minor = _by_minor(topology)
    if detection:
        by_file = _permutation(by_minor[minor] for minor in sorted(by_minor))
        if detection == "full" and _by_address(topology, detection) != by_file:
            raise TopologyError(
                f"{topology.name}: with AutoDetect=full Slurm counts by PCI address or by device"
                f" file, and they differ on this node (device minors {list(topology.minors)});"
                " write AutoDetect=nvml or nvidia, or state slurm_index: identity or a permutation"
            )
        return by_file
    if len(paths) != topology.gpus:
        raise _other_count(topology, paths)
    return _permutation(_gpu_of(path, by_minor, topology) for path in paths)


def _by_minor(topology: NodeTopology) -> dict[int, int]:
    """The GPU of each device minor; TopologyError where one is unknown or repeats."""
    by_minor = {minor: gpu for gpu, minor in enumerate(topology.minors) if minor is not None}
    if None in topology.minors:
        gpu = topology.minors.index(None)
        raise TopologyError(
            f"{topology.name}: device minor of GPU{gpu} is unknown, so"
            " gres.conf's order says nothing; state slurm_index: identity or a permutation"
        )
    if len(by_minor) < topology.gpus:
        raise TopologyError(f"{topology.name}: device minors {list(topology.minors)} repeat")
    return by_minor


def _other_count(topology: NodeTopology, paths: Sequence[str]) -> TopologyError:
    return TopologyError(
        f"{topology.name}: gres.conf has {len(paths)} device files for {topology.gpus} GPUs"
    )


def _by_address(topology: NodeTopology, detection: str) -> SlurmIndex:
    """The order of PCI addresses."""
    places = {pci.place(address or ""): gpu for gpu, address in enumerate(topology.pci)}
    known = sorted(place for place in places if place is not None)
    if len(known) < topology.gpus:
        raise TopologyError(
            f"{topology.name}: PCI addresses of GPUs are unknown or repeat, and"
            f" AutoDetect={detection} counts by them; state slurm_index: identity or a permutation"
        )
    return _permutation(places[place] for place in known)


def _gpu_of(path: str, by_minor: dict[int, int], topology: NodeTopology) -> int:
    match = re.fullmatch(r"(?:\S*\D)?(\d{1,5})", path)
    if match is None or int(match.group(1)) not in by_minor:
        raise TopologyError(
            f"{topology.name}: device file {path} is no GPU's; expected minors {sorted(by_minor)}"
        )
    return by_minor[int(match.group(1))]
