"""Puts the logs of one kind of machine together: what each set of its GPUs reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gres_topology import NodeTopology
from slurm_plugin.link_calibration import log
from slurm_plugin.link_calibration.gpus import gpus_of


@dataclass(frozen=True, slots=True)
class Measured:
    """By GPUs of the topology, ascending: mean bus bandwidth in GB/s, and the logs' names."""

    gbps: dict[tuple[int, ...], float]
    sources: dict[tuple[int, ...], list[str]]


def gather(paths: Sequence[Path], topology: NodeTopology) -> Measured:
    """Read all logs; several of one set (other nodes, other days) count as their mean.

    Raises CalibrationError for the first that cannot be used.
    """
    logs = [log.read(path) for path in paths]
    reached: dict[tuple[int, ...], list[float]] = {}
    sources: dict[tuple[int, ...], list[str]] = {}
    for found, gpus in zip(logs, gpus_of(logs, topology), strict=True):
        reached.setdefault(gpus, []).append(found.busbw_gbps)
        sources.setdefault(gpus, []).append(found.path.name)
    return Measured({gpus: sum(all_) / len(all_) for gpus, all_ in reached.items()}, sources)
