"""The nodes of a story as drawings need them: topology and Slurm's index of each GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gres_topology.readers import saved
from slurm_plugin.decide.machines import Machines
from slurm_plugin.tell.explain.story import gpus_of, loan_places

#: Nodes drawn at most; those of one job look alike anyway.
MAX_DRAWN = 4


def shown(machines: Machines, story: Mapping[str, Any]) -> dict[str, Any]:
    """JSON of the first few known nodes: `topology`, and `order` (Slurm's GPU -> topology's).

    The job's own nodes come first, then its donors', those of Slurm's own choice and of others.
    """
    others = [story.get("slurm", {}), *story.get("candidates", [])]
    nodes = [*sorted(gpus_of(story)), *(node for _, node, _ in loan_places(story))]
    nodes += [name for one in others for name in one.get("gpus", {})]
    drawn: dict[str, Any] = {}
    for name in dict.fromkeys(nodes):
        machine = machines.get(name)
        if machine is not None and machine.topology is not None and len(drawn) < MAX_DRAWN:
            order = machine.order or range(machine.topology.gpus)
            drawn[name] = {"topology": saved.to_dict(machine.topology), "order": list(order)}
    return drawn
