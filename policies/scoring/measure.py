"""Scores for GPU sets that were chosen without looking at them.

So that `first-fit` and `best-fit` are reported in the same numbers as everything else.
"""

from __future__ import annotations

from collections.abc import Mapping

from policies.contract.nouns import Cluster, Placement, Request
from policies.scoring.tables import tables


def measured(
    gpus: Mapping[str, tuple[int, ...]],
    request: Request,
    cluster: Cluster,
    policy: str,
    reason: str,
) -> Placement:
    """A placement of these GPUs, in this rank order, with what they are worth.

    `score` is the utility: effective bandwidth over that of the best set on the empty node.
    """
    effbw, utility, agg, preserved = [], [], 0.0, 0.0
    for name, order in gpus.items():
        state = cluster.nodes[name]
        worth = tables.worth(state.topology, request.pattern, order, state.free)
        agg, preserved = agg + worth.agg_gbps, preserved + worth.preserved_gbps
        if len(order) > 1:
            effbw.append(worth.effbw_gbps)
            utility.append(worth.share)
    lowest = min(utility, default=1.0)
    return Placement(
        gpus=gpus,
        policy=policy,
        reason=reason,
        score=lowest,
        effbw_gbps=min(effbw, default=0.0),
        agg_gbps=agg,
        preserved_gbps=preserved,
        utility=lowest,
    )
