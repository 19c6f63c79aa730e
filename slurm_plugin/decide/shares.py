"""A question about shares of GPUs (shards, MPS) as the policy that answers it.

What is left of each GPU comes with the question alone: Slurm counts it, and no kept node has it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gres_topology import NodeTopology
from policies import RunningJob
from policies.contract.interference import Interference
from policies.slices import Room, Shares
from slurm_plugin.decide.machines import Machine, Machines
from slurm_plugin.placement import CandidateNode, PlacementQuestion

#: What Slurm calls them -> one, and several.
_WORDS: Mapping[str, tuple[str, str]] = {
    "shard": ("shard", "shards"),
    "mps": ("share of MPS", "shares of MPS"),
}


def in_words(asked: PlacementQuestion) -> str:
    """How many shares the job asks for on each node: `4 shards`."""
    return f"{asked.shares} {_WORDS[asked.shared][asked.shares != 1]}"


def policy_for(
    asked: PlacementQuestion,
    machines: Machines,
    names: Collection[str],
    jobs: Collection[RunningJob],
    interference: Interference,
) -> Shares:
    """The policy for one question, of the nodes of these names, in the topologies' indices."""
    rooms = {
        node.name: _room(node, machine, topology)
        for node in asked.candidates
        if node.name in names
        and (machine := machines[node.name])
        and (topology := machine.topology)
    }
    return Shares(rooms, in_words(asked), jobs, interference)


def _room(node: CandidateNode, machine: Machine, topology: NodeTopology) -> Room:
    left = list(node.left)
    for index, gpu in enumerate(machine.order or ()):
        left[gpu] = node.left[index]
    return Room(machine.to_topology(node.idle) & ~topology.broken, tuple(left))
