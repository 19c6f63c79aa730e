"""What to maximise when choosing a GPU set. Data, so that a variant is a line.

`keys` are compared in order, larger first; what remains equal goes to the lowest ids.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from policies.contract.bits import Floats, Ints
from policies.contract.demand import Shares
from policies.matching.links import MB_PER_GB

Across = Literal["bandwidth", "sum", "loss"]


@dataclass(frozen=True, slots=True)
class Scored:
    """What is known about every candidate set of one free mask, one entry per set."""

    #: GPUs in each set.
    k: int
    #: Effective bandwidth, weakest link and sum of links over the best of that size, [0, 1].
    share: Floats
    wide_share: Floats
    agg_share: Floats
    effbw_gbps: Floats
    #: The sum of the links used, and of those left among the free GPUs, MB/s.
    agg: Ints
    preserved: Ints
    #: The widest link cut, MB/s; single GPUs only.
    broken: Ints
    #: What later jobs lose, [0, 1] (`NodeTables.future_of`); None where nobody asked.
    loss: Floats | None
    #: Sum over the set of how far each GPU's nearest NIC is; None where nobody asked.
    nic: Ints | None = None


@dataclass(frozen=True, slots=True)
class Objective:
    """A named order on candidate sets."""

    name: str
    #: Columns to compare in order, larger first; equal sets go by the lowest GPU ids.
    keys: Callable[[Scored], list[Floats | Ints]]
    score: Callable[[Scored], Floats]
    #: Which of a set's matchings gives the rank order: the one with the `widest` weakest link,
    #: the best `effbw`, or the largest `agg`.
    prefers: str
    #: Whether `Scored.loss` is computed.
    looks_ahead: bool
    #: What decides between nodes first: what the job would feel of its `bandwidth`, the `sum` of
    #: its links, or the `loss` of others.
    across: Across = "bandwidth"
    #: Shares of the sizes that later jobs are expected to ask for.
    demand: Shares = ()
    #: Per GPU how far the nearest NIC is, for jobs of several nodes; empty: it does not count.
    nic_distance: tuple[int, ...] = ()
    #: What decided, as the end of a reason: `, chosen by bandwidth alone`. '' for the usual order.
    says: str = ""


def ideal_share(gbps: float, ideal_gbps: float) -> float:
    """A bandwidth as a share of the ideal one, [0, 1]; 1 where nothing is to be had."""
    return min(1.0, max(0.0, gbps / ideal_gbps)) if ideal_gbps > 0 else 1.0


def near_nics(objective: Objective, nic_distance: tuple[int, ...]) -> Objective:
    """The same order, ties to the sets whose GPUs are nearest to a NIC (jobs of several nodes).

    `nic_distance` has one entry per GPU, as `NodeTopology.nic_distance`; empty: no change.
    """
    return replace(objective, nic_distance=nic_distance) if nic_distance else objective


#: What counts beside the share of effective bandwidth: the weakest link, the sum of the links
#: used, and what is lost to later jobs. Chosen from the table in docs/policies/mapa.md.
WEAKEST_WEIGHT = 0.05
SUM_WEIGHT = 0.1
LOSS_WEIGHT = 0.4


def balanced(name: str, weakest_weight: float, says: str = "") -> Objective:
    """Share of the ideal, weakest link, sum of links, less what later jobs lose; weighted.

    A single GPU has no links: it breaks the narrowest one it can, then costs least.
    """

    def score(sets: Scored) -> Floats:
        loss = 0.0 if sets.loss is None else sets.loss
        own = sets.share + weakest_weight * sets.wide_share + SUM_WEIGHT * sets.agg_share
        result: Floats = own - LOSS_WEIGHT * loss
        return result

    def keys(sets: Scored) -> list[Floats | Ints]:
        first: list[Floats | Ints] = [-sets.broken] if sets.k == 1 else []
        return [*first, score(sets), sets.preserved]

    return Objective(name, keys, score, prefers="widest", looks_ahead=True, says=says)


def _plain(
    name: str,
    prefers: str,
    says: str,
    *columns: Callable[[Scored], Floats | Ints],
    per_gbps: int = 1,
    across: Across = "bandwidth",
) -> Objective:
    """The columns in order; the score is the first, of which `per_gbps` make one GB/s."""

    def score(sets: Scored) -> Floats:
        return np.asarray(columns[0](sets) / per_gbps, dtype=np.float64)

    def keys(sets: Scored) -> list[Floats | Ints]:
        return [column(sets) for column in columns]

    return Objective(name, keys, score, prefers, looks_ahead=False, across=across, says=says)


#: Share of the ideal effective bandwidth, the weakest link, and what is left for others.
BALANCED = balanced("balanced", WEAKEST_WEIGHT)
#: As BALANCED, but a narrow hop weighs as much as the whole ideal.
WIDEST = balanced("widest", 1.0, ", chosen to avoid a narrow hop")
#: Largest effective bandwidth (MAPA Algorithm 1, sensitive jobs); ties preserve most.
EFFBW = _plain(
    "effbw",
    "effbw",
    ", chosen by bandwidth alone",
    lambda sets: sets.effbw_gbps,
    lambda sets: sets.preserved,
)
#: Largest sum of the links used (MAPA Greedy).
AGGREGATE = _plain(
    "aggregate",
    "agg",
    ", chosen by the sum of its links",
    lambda sets: sets.agg,
    per_gbps=MB_PER_GB,
    across="sum",
)
#: Most bandwidth left among the free GPUs (MAPA Algorithm 1, insensitive jobs).
PRESERVED = _plain(
    "preserved",
    "widest",
    ", chosen for what it leaves to others",
    lambda sets: sets.preserved,
    lambda sets: sets.effbw_gbps,
    per_gbps=MB_PER_GB,
)


def _loss(sets: Scored) -> Floats:
    return np.zeros(len(sets.share)) if sets.loss is None else sets.loss


def site_sensitive(demand: Shares) -> Objective:
    """Algorithm 1's largest effective bandwidth; ties cost the jobs of `demand` least."""

    def keys(sets: Scored) -> list[Floats | Ints]:
        own: Floats | Ints = -sets.broken if sets.k == 1 else sets.effbw_gbps
        return [own, -_loss(sets), sets.preserved]

    return Objective(
        "site-effbw",
        keys,
        lambda sets: sets.effbw_gbps,
        prefers="effbw",
        looks_ahead=True,
        demand=demand,
        says=", chosen by bandwidth, then for what it leaves to the usual jobs",
    )


def site_insensitive(demand: Shares) -> Objective:
    """The set whose loss costs the jobs of `demand` least; then Algorithm 1's most preserved."""
    return Objective(
        "site-preserved",
        lambda sets: [-_loss(sets), sets.preserved, sets.effbw_gbps],
        lambda sets: -_loss(sets),
        prefers="widest",
        looks_ahead=True,
        across="loss",
        demand=demand,
        says=", chosen for what it leaves to the usual jobs",
    )
