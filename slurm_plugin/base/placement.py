"""What is asked about a job that is to be placed. GPU sets are masks: bit i is Slurm's GPU i."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from policies.contract.nodes import Candidates

#: What Slurm calls shares of GPUs -> what one is called, and several.
_SHARES = {"shard": ("shard", "shards"), "mps": ("share of MPS", "shares of MPS")}


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """A node where the job could start."""

    name: str
    #: How many GPUs the node has.
    total: int
    #: The GPUs that the job may take.
    free: int
    #: The GPUs that Slurm itself would take; 0 where it would not use the node.
    own: int
    #: Slurm's node Weight: the lowest goes first.
    weight: int
    #: Of a job of shards or MPS: the GPUs that nobody uses any part of, and how many shares the
    #: job could have of each.
    idle: int = 0
    left: tuple[int, ...] = ()


class OtherNodes(Protocol):
    """Nodes of a cluster that is kept: too many to be listed."""

    @property
    def excluded(self) -> Mapping[str, str]:
        """Nodes of the cluster that are left to Slurm's own choice, and why."""

    def with_own(self, own: Mapping[str, int]) -> Candidates:
        """They and these, Slurm's own (masks by name), as policies see them."""

    def free_on(self, name: str) -> int:
        """The GPUs (mask) that are free on a node of the cluster; 0 for one that is not known."""

    def stand_in(
        self, count: int, reserved: Mapping[str, int], without: Collection[str]
    ) -> CandidateNode | None:
        """The first node, lowest weight first, with `count` GPUs free beside the reserved ones."""


@dataclass(frozen=True, slots=True)
class PlacementQuestion:
    """Which GPUs a job gets now."""

    #: Its id; 0 for a job that is only being submitted.
    job: int
    #: The id of its array; 0 where it is in none.
    array: int
    #: Its user.
    uid: int
    #: How often a policy let it wait before.
    postponed: int
    #: Seconds since the first of these waits.
    waited_s: int
    candidates: tuple[CandidateNode, ...]
    account: str = ""
    partition: str = ""
    #: The user's hint, as written.
    hint: str = ""
    #: More nodes that it may use, of a cluster that is known; `candidates` are then Slurm's own.
    others: OtherNodes | None = None
    #: GPUs of any of these nodes that are kept for other jobs (masks by name).
    reserved: Mapping[str, int] = field(default_factory=dict)
    #: The type of GPU that it asks for; "" for any.
    type: str = ""
    #: What it asks for shares of GPUs by: `shard` or `mps`, "" where it asks for GPUs; and how many
    #: on each node. `free` and `own` are then GPUs that they can be of, `own` one of each node.
    shared: str = ""
    shares: int = 0
    #: What Slurm weighs itself when it chooses nodes: `tree` or `block` of a topology.conf, `yaml`
    #: for a topology.yaml; "" for nothing.
    topology: str = ""
    #: The partition's topology of the topology.yaml; "" for the default one.
    network: str = ""
    #: --segment: nodes in so many are each in one block; 0 for no such wish.
    segment: int = 0
    #: Of srun or salloc: somebody may sit there and wait for it.
    interactive: bool = False

    @property
    def shares_in_words(self) -> str:
        """How many shares the job asks for on each node: `4 shards`."""
        one, several = _SHARES[self.shared]
        return f"{self.shares} {several if self.shares != 1 else one}"
