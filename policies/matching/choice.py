"""One set of GPUs that a job could get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from policies.contract.bits import mask_of


@dataclass(frozen=True, slots=True)
class Choice:
    """One GPU set with everything known about it."""

    mask: int
    #: The GPUs in rank order.
    order: tuple[int, ...]
    score: float
    effbw_gbps: float
    agg_gbps: float
    preserved_gbps: float
    weakest_gbps: float
    #: Effective bandwidth and weakest link over the best of that size on the empty node, [0, 1].
    share: float = 1.0
    wide_share: float = 1.0
    #: What taking the set costs later jobs, [0, 1].
    loss: float = 0.0
    #: The widest link cut to a GPU that stays free.
    broken_gbps: float = 0.0
    destroyed_gbps: float = 0.0
    #: Whether it is known that no free set has a better matching.
    proven: bool = True

    def on(self, to: Sequence[int] | Mapping[int, int]) -> Choice:
        """The same on GPUs that can take the place of its own: `to[gpu]` is that of each."""
        order = tuple(to[gpu] for gpu in self.order)
        return replace(self, mask=mask_of(order), order=order)
