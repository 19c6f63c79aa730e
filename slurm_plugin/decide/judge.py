"""One judge for every choice: mapa's scores, whoever chose.

So that the decision log can set Slurm's own choice, or that of a policy which scores
nothing, beside ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from policies import Cluster, NodeState, Placement, Request, Wait
from policies.mapa import Mapa
from slurm_plugin.decide.machines import mask_of

JUDGE = Mapa()


def judge(
    gpus: Mapping[str, int], request: Request, nodes: Mapping[str, NodeState]
) -> Placement | None:
    """Scores of the sets `gpus` (node -> mask, the topology's indices) for this request.

    `nodes` are the states before the job. None where there is nothing to score.
    """
    states = {name: replace(nodes[name], free=mask) for name, mask in gpus.items()}
    counts = tuple(sorted((mask.bit_count() for mask in gpus.values()), reverse=True))
    asked = replace(request, gpus_per_node=counts, min_utility=0.0)
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
    if placement.effbw_gbps or placement.agg_gbps or placement.preserved_gbps:
        return placement
    masks = {name: mask_of(chosen) for name, chosen in placement.gpus.items()}
    judged = judge(masks, request, nodes)
    if judged is None:
        return placement
    scored = replace(judged, gpus=placement.gpus, policy=placement.policy, reason=placement.reason)
    if not placement.terms:
        return scored
    # The policy's own utility stands; only the links' figures were missing.
    return replace(
        scored,
        score=placement.score,
        utility=placement.utility,
        terms=placement.terms,
        candidates=placement.candidates,
    )


def _inside_gbps(state: NodeState, mask: int) -> float:
    """Sum of the links among the GPUs of a mask (MAPA's PreservedBW, eq. 3), GB/s."""
    gpus = [gpu for gpu in range(state.topology.gpus) if mask >> gpu & 1]
    return float(state.topology.bandwidth_gbps[gpus][:, gpus].sum() / 2)
