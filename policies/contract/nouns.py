"""The nouns every policy speaks: Cluster, Request, Placement, Wait.

All are immutable. GPU sets are bit masks (bit i = GPU i of the node) where they are
sets, and tuples where order matters (rank order).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from types import MappingProxyType
from typing import NamedTuple, overload

from gres_topology import Network, NodeTopology


@dataclass(frozen=True, slots=True)
class NodeState:
    """One candidate node at the moment of the question."""

    name: str
    topology: NodeTopology
    #: Mask of the GPUs that the job may take here.
    free: int
    #: Mask of the GPUs that Slurm itself would take; 0 where it would not use the node.
    own: int = 0
    #: Slurm's node Weight.
    weight: int = 1


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that runs (read from Slurm). A policy may take the same object for the same job."""

    job_id: int
    #: Mask of its GPUs by node.
    gpus: Mapping[str, int]
    #: What its hint says: profile, batch size, host memory bandwidth per node in GB/s.
    profile: str | None = None
    batch: int | None = None
    memory_gbps: float = 0.0
    #: Its owner's uid, where that is known.
    user: int | None = None
    #: Does it have shares of these GPUs only (shards, MPS)?
    shares: bool = False
    #: Which ranks talk to which, of a job that does not say how much; empty for the others.
    untold: str = ""


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that waits, in what policies go by."""

    gpus_per_node: tuple[int, ...]
    #: How long it will run, as far as that is known (seconds).
    lasts_s: float
    pattern: str = "ring"
    sensitive: bool = True
    #: What share of its run time it communicates on the best GPUs; None: nobody said.
    communication: float | None = None
    #: What kind of job it is, and whose (uid), as far as that is known.
    profile: str = ""
    batch: int = 0
    user: int | None = None
    #: Run times of its user's jobs like it (seconds, ascending); none where too little is known.
    took_s: Sequence[float] = ()


class Release(NamedTuple):
    """GPUs that become free; times (seconds) are by the clock of `Ahead.now_s`."""

    #: When the job's time limit is over.
    end_s: float
    node: str
    mask: int
    #: When the job began, and which one it is: GPUs of one job come free together.
    start_s: float = 0.0
    job: int = 0
    #: As `WaitingJob.took_s`.
    took_s: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is to come, as far as it is known at the moment of a question."""

    #: How long the job that is asked about will run (seconds).
    lasts_s: float
    #: Who else waits, in Slurm's order; the first ones of many.
    queue: Sequence[WaitingJob] = ()
    #: Which GPUs come free, the earliest first; the first ones of many.
    releases: Sequence[Release] = ()
    #: Whether jobs may pass the first one that waits where they do not delay it (backfill).
    backfill: bool = True
    #: What parts of their time limits jobs used lately, ascending; none where all use them up.
    used: Sequence[float] = ()
    #: As `WaitingJob.took_s`, of the job that is asked about.
    took_s: Sequence[float] = ()
    #: What the clock shows at the moment of the question.
    now_s: float = 0.0
    #: Whether users may not see each other's jobs: no reason tells of one.
    is_private: bool = False
    #: How long the job has waited by a policy's word (seconds), since the first time.
    waited_s: float = 0.0
    #: What share of their run time jobs communicate that do not say, as far as those that ended
    #: showed it.
    usual: float | None = None
    #: How many of the queue come before the job itself: it passes them where Slurm backfills.
    before: int = 0
    #: Whose job each of `used` was (any identity; None: not known); empty where none is known.
    used_by: Sequence[Hashable] = ()


@dataclass(frozen=True, slots=True)
class Cluster:
    """A snapshot: candidate nodes by name, what runs on them, and the network between them.

    `network` is None where it is not known (one switch for all, say), and so is `ahead`.
    """

    nodes: Mapping[str, NodeState]
    jobs: Collection[RunningJob] = ()
    network: Network | None = None
    ahead: Ahead | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What one job asks of a policy."""

    #: One count per node wanted, largest first: (4, 4) is two nodes with four GPUs each.
    gpus_per_node: tuple[int, ...]
    job_id: int | None = None
    #: Which ranks talk to which, by name.
    pattern: str = "ring"
    #: Whether the job feels slow links.
    sensitive: bool = True
    #: The utility in [0, 1] below which the job would rather wait: under mapa the share of the
    #: ideal (the best set of that size on an empty node), under topo-aware-p its three terms' mean.
    min_utility: float = 0.0
    #: The other hint keys that the policy reads, with their values.
    options: Mapping[str, str] = field(default_factory=dict)
    #: The owner's uid.
    user: int | None = None
    #: Whether somebody may sit there and wait for it to start (srun, salloc).
    interactive: bool = False


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


class CandidatesLater(Sequence[Candidate]):
    """Candidates that are computed when somebody looks at them: the job does not wait for them."""

    def __init__(self, compute: Callable[[], Sequence[Candidate]]) -> None:
        self._compute = compute

    @cached_property
    def _all(self) -> tuple[Candidate, ...]:
        return tuple(self._compute())

    @overload
    def __getitem__(self, at: int) -> Candidate: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Candidate, ...]: ...
    def __getitem__(self, at: int | slice) -> Candidate | tuple[Candidate, ...]:
        return self._all[at]

    def __len__(self) -> int:
        return len(self._all)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all == tuple(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a policy puts a job: its GPUs, and what they are worth."""

    #: GPUs in rank order, by node.
    gpus: Mapping[str, tuple[int, ...]]
    policy: str
    reason: str
    score: float = 0.0
    #: The minimum over the nodes.
    effbw_gbps: float = 0.0
    #: Sums over the nodes used: the links used, and those left among the free GPUs.
    agg_gbps: float = 0.0
    preserved_gbps: float = 0.0
    #: In [0, 1], as `Request.min_utility`.
    utility: float = 1.0
    #: What the policy compared, its own choice first.
    candidates: Sequence[Candidate] = ()
    #: What the utility is made of, where the policy has such terms: each in [0, 1], 1 is best.
    terms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet: why, for how long at most, and what the job would have got now.

    `at_most_s` is counted from the first time that the job was postponed, so that the waits of one
    question after the other add up to no more; without it the site's bounds alone hold.
    """

    reason: str
    at_most_s: float = inf
    instead: Placement | None = None
