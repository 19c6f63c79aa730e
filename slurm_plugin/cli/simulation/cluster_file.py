"""The `nodes` of a YAML file as a cluster to simulate: gputopo.yaml itself will do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gres_topology import NodeTopology


def read(path: Path) -> dict[str, NodeTopology]:
    """Node name -> topology, from `nodes: [{nodes: HOSTLIST, topology: NAME|FILE}]`.

    Other keys are ignored; a topology's file is looked for beside the YAML first. Raises
    SimulationError or TopologyError.
    """
    import yaml

    from simulation.errors import SimulationError

    try:
        found = yaml.safe_load(path.read_text())
    except OSError as error:
        raise SimulationError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SimulationError(f"{path}: not YAML: {error}") from None
    entries = found.get("nodes") if isinstance(found, dict) else None
    if not isinstance(entries, list) or not entries:
        raise SimulationError(
            f"{path}: no list `nodes`; expected nodes: [{{nodes: dgx[1-4], topology: dgx1v}}]"
        )
    cluster: dict[str, NodeTopology] = {}
    for place, entry in enumerate(entries):
        _add(cluster, path, f"{path}: nodes[{place}]", entry)
    return cluster


def _add(cluster: dict[str, NodeTopology], path: Path, where: str, entry: object) -> None:
    from gres_topology import find
    from gres_topology.hostlist import expand
    from simulation.errors import SimulationError

    if not isinstance(entry, dict) or not all(
        isinstance(entry.get(key), str) for key in ("nodes", "topology")
    ):
        raise SimulationError(f"{where}: expected {{nodes: HOSTLIST, topology: NAME or FILE}}")
    beside = path.parent / entry["topology"]
    topology = find(str(beside) if beside.is_file() else entry["topology"])
    try:
        names = expand(entry["nodes"])
    except ValueError as error:
        raise SimulationError(f"{where}: {error}") from None
    for name in names:
        if name in cluster:
            raise SimulationError(f"{where}: {name} is declared twice; expected once")
        cluster[name] = topology
