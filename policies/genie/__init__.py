"""GENIE (Chen et al., TPDS): jobs are shaped and the queue ordered so that deadlines hold."""

from policies.contract.scheduling import Scheduler
from policies.genie import baselines
from policies.genie.algorithm import GeniePaper
from policies.genie.dynamic import Genie

__all__ = ["schedulers"]


def schedulers(profiles: tuple[str, ...]) -> tuple[Scheduler, ...]:
    """All schedulers in the order of the paper's comparison, ours last.

    `profiles` are the kinds of model that `Capacity` keeps apart.
    """
    return (
        baselines.FIFO,
        baselines.Capacity(tuple(sorted(profiles))),
        baselines.MIN_MIN,
        baselines.WEIGHTED_FAIR,
        baselines.TETRIS_PERF,
        baselines.TETRIS_CER,
        GeniePaper(),
        Genie(),
    )
