"""The nouns every policy speaks: Cluster, Request, Placement, Wait.

All are immutable. GPU sets are bit masks (bit i = GPU i of the node) where they are
sets, and tuples where order matters (rank order).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from gres_topology import Network, NodeTopology


@dataclass(frozen=True, slots=True)
class NodeState:
    """One candidate node at the moment of the question.

    `free` is the mask of GPUs the job may take here; `own` the GPUs Slurm itself
    would take (0 where it would not use the node); `weight` is Slurm's node Weight.
    """

    name: str
    topology: NodeTopology
    free: int
    own: int = 0
    weight: int = 1
    free_cpus: int | None = None
    free_memory_mb: int | None = None


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job beside which the new one would run (a cache rebuilt from Slurm).

    `gpus` holds a mask per node; `profile`, `batch` and `memory_gbps` (host memory
    bandwidth per node, GB/s) are what its hint says; `user` is its owner's uid, where that is
    known. Not changed once made: a policy may take the same object for the same job.
    """

    job_id: int
    gpus: Mapping[str, int]
    profile: str | None = None
    batch: int | None = None
    memory_gbps: float = 0.0
    user: int | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """A snapshot: candidate nodes by name, what runs on them, and the network between them.

    `network` is None where it is not known (one switch for all, say).
    """

    nodes: Mapping[str, NodeState]
    jobs: tuple[RunningJob, ...] = ()
    network: Network | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What one job asks of a policy.

    `gpus_per_node` holds one count per node wanted, largest first: (4, 4) is two nodes
    with four GPUs each. `min_utility` in [0, 1] is the utility below which the job would
    rather wait: under mapa the share of the ideal (the best set of that size on an empty
    node), under topo-aware-p the mean of its three terms. `user` is the owner's uid.
    """

    gpus_per_node: tuple[int, ...]
    job_id: int | None = None
    pattern: str = "ring"
    sensitive: bool = True
    min_utility: float = 0.0
    options: Mapping[str, str] = field(default_factory=dict)
    user: int | None = None


class Candidate(NamedTuple):
    """One choice a policy looked at, kept for the decision log and `explain`.

    A tuple, because every decision makes some eight of them within its 20 microseconds.
    """

    gpus: Mapping[str, tuple[int, ...]]
    score: float
    effbw_gbps: float
    agg_gbps: float
    preserved_gbps: float
    terms: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Placement:
    """The answer: node -> GPUs in rank order, its scores, and why.

    `effbw_gbps` and `agg_gbps` are the minimum and the sum over nodes, `preserved_gbps`
    the sum over the nodes used; `utility` is in [0, 1] as in Request.min_utility. `terms`
    names what the utility is made of, where a policy can tell: each in [0, 1], 1 is best.
    """

    gpus: Mapping[str, tuple[int, ...]]
    policy: str
    reason: str
    score: float = 0.0
    effbw_gbps: float = 0.0
    agg_gbps: float = 0.0
    preserved_gbps: float = 0.0
    utility: float = 1.0
    candidates: tuple[Candidate, ...] = ()
    terms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet: why, for how long at most, and what the job would have got now."""

    reason: str
    at_most_s: float
    instead: Placement | None = None
