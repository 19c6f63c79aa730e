"""What a site may switch off of `horizon`; `gputopo experiment horizon-parts` has what it costs."""

from __future__ import annotations

from dataclasses import dataclass

from policies.contract.hint_keys import USUAL_COMMUNICATION
from policies.contract.settings import setting

#: What a ring through the host costs beside its bandwidth, as a share of the ideal.
HOP_WEIGHT = 0.1


@dataclass(frozen=True, slots=True)
class HorizonSettings:
    """What `horizon` looks at, each of which can be switched off to see what it brings."""

    queue: bool = setting(
        True,
        "Look at the jobs that wait; without, sets are chosen as by mapa, and a job that waits"
        " gives way to nobody.",
    )
    releases: bool = setting(True, "Look at the GPUs that come free.")
    guesses: bool = setting(
        True,
        "Play five more futures, in which jobs use other parts of their time limits; without, the"
        " middle one alone.",
    )
    users: bool = setting(
        True, "Guess run times by those of users' own jobs, while they are nearer than limits."
    )
    hop_weight: float = setting(
        HOP_WEIGHT, "What a ring through the host costs, as a share of the ideal.", high=10
    )
    wait: bool = setting(
        True, "Let jobs wait for better GPUs; the hint min-utility lets them wait all the same."
    )
    usual_communication: float = setting(
        USUAL_COMMUNICATION,
        "What share of its run time a job is taken to communicate that does not say; with 0 such"
        " jobs go where they leave other nodes whole, and wait for nothing.",
        high=1,
    )
    learn: bool = setting(
        True, "Once such jobs have ended, take what their run times show where that is less."
    )
