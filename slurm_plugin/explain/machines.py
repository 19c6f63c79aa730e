"""The nodes of a story as drawings need them: topology and Slurm's index of each GPU."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gres_topology.readers import saved
from slurm_plugin.decide.machines import Machines

#: Nodes drawn at most; those of one job look alike anyway.
MAX_DRAWN = 4


def shown(machines: Machines, nodes: Iterable[str]) -> dict[str, Any]:
    """JSON of the first few known nodes: `topology`, and `order` (Slurm's GPU -> topology's)."""
    found: dict[str, Any] = {}
    for name in sorted(nodes):
        machine = machines.get(name)
        if machine is not None and machine.topology is not None and len(found) < MAX_DRAWN:
            order = machine.order or range(machine.topology.gpus)
            found[name] = {"topology": saved.to_dict(machine.topology), "order": list(order)}
    return found


def draw(
    machines: Mapping[str, Any], gpus: Mapping[str, list[int]], job: int, target: Path
) -> list[Path]:
    """Draw each node with the job's GPUs marked in rank order; the files written.

    Of several nodes each file has the node's name in it. Raises TopologyError.
    """
    from gres_topology.drawing import draw as draw_node

    written = []
    for name, machine in machines.items():
        text = json.dumps(machine["topology"])
        topology = saved.read(text, name=name, source=f"job {job}")
        order = machine["order"]
        marked = [order[gpu] for gpu in gpus.get(name, []) if gpu < len(order)]
        several = len(machines) > 1
        path = target.with_name(f"{target.stem}-{name}{target.suffix}") if several else target
        draw_node(topology, path, chosen=marked, title=f"job {job} on {name}")
        written.append(path)
    return written
