"""A story as a picture: the job on its nodes, and the sets it could have had, with scores."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gres_topology import NodeTopology
from gres_topology.pictures import Marks, Pane, Picture, machine_picture, sheet
from gres_topology.readers import saved
from policies.errors import PolicyError
from policies.patterns.pattern import pairs_of
from slurm_plugin.decide.machines import names_of
from slurm_plugin.tell.explain.story import gpus_of, loan_places
from slurm_plugin.tell.explain.text import asked, figures, gpu_list, headline, printable

#: Small pictures of candidates, the chosen one and Slurm's own included.
MOST_SMALL = 12
_WIDE, _SMALL = 1008.0, 237.0


def drawn(story: Mapping[str, Any], machines: Mapping[str, Any]) -> Picture:
    """The story on one sheet; `machines` are the nodes as `machines.shown` tells them.

    Each node of the job in full, Slurm's own choice outlined; then the chosen set, Slurm's own and
    the next candidates as small pictures. Nodes that are not among `machines` are left out.
    Raises TopologyError where a node's topology cannot be read.
    """
    nodes = {name: _Node(name, machine) for name, machine in machines.items()}
    own = story.get("slurm", {}).get("gpus", {})
    large = [
        Pane(nodes[name].picture(story, gpus, own.get(name, ()), said=said), _WIDE)
        for said, name, gpus in _places(story)
        if name in nodes and gpus
    ]
    small = [
        Pane(nodes[name].picture(story, some, ()), _SMALL, _caption(said, choice))
        for said, choice in _choices(story)
        for name, some in choice.get("gpus", {}).items()
        if name in nodes and some
    ]
    lines = [printable(line.strip()) for line in asked(story)]
    return sheet(printable(headline(story)), lines, [*large, *small[:MOST_SMALL]])


class _Node:
    def __init__(self, name: str, machine: Mapping[str, Any]) -> None:
        self.name = name
        text = json.dumps(machine["topology"])
        self.topology: NodeTopology = saved.read(text, name=name, source="the engine")
        self.order: Sequence[int] = machine["order"]

    def picture(
        self, story: Mapping[str, Any], gpus: Sequence[int], own: Collection[int], said: str = ""
    ) -> Picture:
        """The node with these GPUs (Slurm's index, in rank order) as the job's.

        With `said`, words for what they are to it, it is a large picture with heading and key.
        """
        # Several slices may be of one GPU.
        chosen = list(dict.fromkeys(self.order[gpu] for gpu in gpus if gpu < len(self.order)))
        beside = [] if set(own) == set(gpus) else own
        # No link joins slices, nor are a loan's parts all of the pattern.
        is_whole = "of_gpus" not in story.get("chosen", {}) and not loan_places(story)
        pattern = story.get("pattern", "ring") if is_whole else ""
        marks = Marks(
            chosen=chosen,
            hops=hops_of(pattern, chosen) if pattern else [],
            beside=list({self.order[gpu]: None for gpu in beside if gpu < len(self.order)}),
            names=names_of(self.order, self.topology.gpus),
        )
        title = f"{gpu_list({self.name: gpus})}  {said}"
        return machine_picture(self.topology, marks, title=title, is_small=not said)


def _places(story: Mapping[str, Any]) -> list[tuple[str, str, list[int]]]:
    """What the job's GPUs are to it, on which node, and which."""
    said, where = "chosen", gpus_of(story)
    if "started" in story:
        said = "started there"
    elif story.get("decision") == "wait":
        said, where = "would be there now", story.get("chosen", {}).get("gpus", {})
    own = [(said, name, gpus) for name, gpus in where.items()]
    return [*loan_places(story)] or own


def hops_of(pattern: str, gpus: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs that talk; none where the pattern is of a file that is not known here."""
    try:
        return pairs_of(pattern, gpus)
    except PolicyError:
        return []


def _choices(story: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """What each set is, and the set: the chosen one, Slurm's own, the next candidates."""
    chosen, own = story.get("chosen", {}), story.get("slurm", {})
    sets = [("would be now" if story.get("decision") == "wait" else "chosen", chosen)]
    sets.append(("Slurm's own", own))
    others = [one for one in story.get("candidates", []) if one["gpus"] != chosen.get("gpus")]
    return [*sets, *(("looked at", one) for one in others)]


def _caption(said: str, choice: Mapping[str, Any]) -> list[str]:
    """What the set is, its GPUs, and its first figures, a line each."""
    return [said, gpu_list(choice.get("gpus", {})), ", ".join(figures(choice)[:2])]
