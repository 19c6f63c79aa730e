"""Mapa's scores for choices that have none: Slurm's own, and those of policies without scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from policies.contract.bits import mask_of
from policies.contract.nouns import Cluster, NodeState, Placement, Request, Wait
from policies.mapa.family import Mapa

JUDGE = Mapa()
#: What a placement says of its links.
FIGURES = ("effbw_gbps", "agg_gbps", "preserved_gbps")


def judge(
    gpus: Mapping[str, int], request: Request, nodes: Mapping[str, NodeState]
) -> Placement | None:
    """Scores of the sets `gpus` (node -> mask, the topology's indices) for this request.

    `nodes` are the states before the job. None where there is nothing to score.
    """
    states = {name: replace(nodes[name], free=mask) for name, mask in gpus.items()}
    counts = tuple(sorted((mask.bit_count() for mask in gpus.values()), reverse=True))
    asked = replace(request, gpus_per_node=counts)
    outcome = JUDGE.place(asked, Cluster(states))
    placement = outcome.instead if isinstance(outcome, Wait) else outcome
    if placement is None:
        return None
    left = sum(_inside_gbps(nodes[name], nodes[name].free & ~mask) for name, mask in gpus.items())
    return replace(placement, preserved_gbps=left, candidates=())


def with_scores(
    placement: Placement, request: Request, nodes: Mapping[str, NodeState]
) -> Placement:
    """The placement; scored by the judge if its policy gave no scores."""
    if any(getattr(placement, name) for name in FIGURES):
        return placement
    masks = {name: mask_of(chosen) for name, chosen in placement.gpus.items()}
    judged = judge(masks, request, nodes)
    if judged is None:
        return placement
    if not placement.terms:
        policy, reason = placement.policy, placement.reason
        return replace(judged, gpus=placement.gpus, policy=policy, reason=reason)
    # The policy's own utility stands; only the links' figures were missing.
    return replace(placement, **{name: getattr(judged, name) for name in FIGURES})


def _inside_gbps(state: NodeState, mask: int) -> float:
    """Sum of the links among the GPUs of a mask (MAPA's PreservedBW, eq. 3), GB/s."""
    gpus = [gpu for gpu in range(state.topology.gpus) if mask >> gpu & 1]
    return float(state.topology.bandwidth_gbps[gpus][:, gpus].sum() / 2)
