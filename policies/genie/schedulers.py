"""The schedulers by name, in the order of the paper's comparison; ours last."""

from __future__ import annotations

from policies.contract.scheduling import Scheduler
from policies.genie.algorithm import GeniePaper
from policies.genie.baselines import (
    FIFO,
    MIN_MIN,
    TETRIS_CER,
    TETRIS_PERF,
    WEIGHTED_FAIR,
    Capacity,
)
from policies.genie.dynamic import Genie


def schedulers(profiles: tuple[str, ...]) -> tuple[Scheduler, ...]:
    """All of them; `profiles` are the kinds of model that capacity keeps apart."""
    return (
        FIFO,
        Capacity(tuple(sorted(profiles))),
        MIN_MIN,
        WEIGHTED_FAIR,
        TETRIS_PERF,
        TETRIS_CER,
        GeniePaper(),
        Genie(),
    )
