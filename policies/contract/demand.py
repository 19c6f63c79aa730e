"""What a site usually asks: how large its jobs are on one node, as shares that add up to 1."""

from __future__ import annotations

import math
from collections.abc import Mapping

from policies.errors import PolicyError

#: (GPUs on one node, share of the jobs), sizes ascending; empty: nothing is known.
Shares = tuple[tuple[int, float], ...]


def shares(counts: Mapping[int, float]) -> Shares:
    """Weights by GPUs per node as shares; those of weight 0 are left out.

    Raises PolicyError for a size below 1, a weight that is negative or no number, or weights
    that are all 0.
    """
    for gpus, weight in counts.items():
        if gpus < 1 or not math.isfinite(weight) or weight < 0:
            raise PolicyError(
                f"{gpus} GPUs: {weight:g}: expected at least 1 GPU and a weight of 0 or more"
            )
    total = sum(counts.values())
    if counts and total <= 0:
        raise PolicyError("all weights are 0: expected at least one size that is asked for")
    return tuple((gpus, counts[gpus] / total) for gpus in sorted(counts) if counts[gpus] > 0)
