"""A question about shares of GPUs (shards, MPS) as the policy that answers it.

What is left of each GPU comes with the question alone: Slurm counts it, and no kept node has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from gres_topology import NodeTopology
from policies import Request, RunningJob
from policies.contract.hint_keys import BATCH, PROFILE
from policies.contract.interference import Interference
from policies.slices import Room, Shares
from slurm_plugin.decide.machines import Machine, Machines
from slurm_plugin.placement import CandidateNode, PlacementQuestion

#: What Slurm calls them -> one, and several.
_WORDS: Mapping[str, tuple[str, str]] = {
    "shard": ("shard", "shards"),
    "mps": ("share of MPS", "shares of MPS"),
}


#: Hint keys that tell jobs apart.
SAYS_WHAT_IT_IS = {PROFILE.name, BATCH.name}


def _nobody(node: str) -> Collection[RunningJob]:
    return ()


def _nothing() -> None:
    pass


def in_words(asked: PlacementQuestion) -> str:
    """How many shares the job asks for on each node: `4 shards`."""
    return f"{asked.shares} {_WORDS[asked.shared][asked.shares != 1]}"


@dataclass(frozen=True, slots=True)
class Sharing:
    """Who has shares of which GPU, and how much jobs slow each other."""

    #: The jobs with shares on a node.
    on: Callable[[str], Collection[RunningJob]] = _nobody
    #: Asks for them to be followed: reading the queue costs Slurm something.
    want: Callable[[], None] = _nothing
    interference: Callable[[], Interference] = Interference

    def policy_for(
        self,
        asked: PlacementQuestion,
        machines: Machines,
        names: Collection[str],
        request: Request,
    ) -> Shares:
        """The policy for one question, of the nodes of these names, in the topologies' indices.

        Until a job says what it is, nobody is known to slow anybody.
        """
        if SAYS_WHAT_IT_IS & request.options.keys():
            self.want()
        rooms = {
            node.name: _room(node, machine, topology)
            for node in asked.candidates
            if node.name in names
            and (machine := machines[node.name])
            and (topology := machine.topology)
        }
        return Shares(rooms, in_words(asked), self.on, self.interference())


#: Where nobody is followed.
NOBODY_SHARES = Sharing()


def _room(node: CandidateNode, machine: Machine, topology: NodeTopology) -> Room:
    left = list(node.left)
    for index, gpu in enumerate(machine.order or ()):
        left[gpu] = node.left[index]
    return Room(machine.to_topology(node.idle) & ~topology.broken, tuple(left))
