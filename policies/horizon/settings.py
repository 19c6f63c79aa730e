"""What a site may switch off of `horizon`; `gputopo experiment horizon-parts` has what it costs."""

from __future__ import annotations

from dataclasses import dataclass

from policies.contract.settings import setting

#: What a ring through the host costs beside its bandwidth, as a share of the ideal.
HOP_WEIGHT = 0.1


@dataclass(frozen=True, slots=True)
class HorizonSettings:
    """Its parts."""

    queue: bool = setting(True, "Look at the jobs that wait; without, it places as mapa.")
    releases: bool = setting(True, "Look at the GPUs that come free.")
    guesses: bool = setting(
        True, "Play five more futures, in which jobs use other parts of their time limits."
    )
    hop_weight: float = setting(
        HOP_WEIGHT, "What a ring through the host costs, as a share of the ideal.", high=10
    )
    wait: bool = setting(True, "Let jobs that communicate wait for better GPUs.")
