"""What the R queue takes off each job's times: Table III's means and deviations, Figures 9 to 11.

A decrease is the G queue's time of a job minus its time on the other queue, so it is negative
where the job lost by the change (section IV.C).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers.simulators.loans import Ended

_Seconds = NDArray[Any]

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0
#: Edges of the bins, seconds. A job within a second of its old time counts as unchanged, for the
#: paper's simulator errs by its steps.
WAIT_EDGES_S = (-np.inf, -HOUR_S, -1.0, 1.0, MINUTE_S, HOUR_S, 6 * HOUR_S, DAY_S, np.inf)
EXECUTION_EDGES_S = (-np.inf, -100.0, -10.0, -1.0, 1.0, np.inf)
#: The paper's figure of each time, and its bins.
FIGURES = {
    "wait": ("Figure 9", WAIT_EDGES_S),
    "execution": ("Figure 10", EXECUTION_EDGES_S),
    "life": ("Figure 11", WAIT_EDGES_S),
}


def decreases(ended: Sequence[Ended], before: Sequence[Ended]) -> dict[str, _Seconds]:
    """Seconds by which each job's wait, execution and life became shorter, in the log's order."""
    return {
        time: np.array([getattr(job, f"{time}_s") for job in before])
        - np.array([getattr(job, f"{time}_s") for job in ended])
        for time in FIGURES
    }


def moments(ended: Sequence[Ended], before: Sequence[Ended]) -> dict[str, float]:
    """Table III's columns: mean and standard deviation over the jobs of each decrease.

    `waiting_longer_s` is how much longer those wait that wait longer at all (section IV.C).
    """
    figures: dict[str, float] = {}
    by_time = decreases(ended, before)
    for time, seconds in by_time.items():
        figures[f"{time}_decrease_s"] = float(seconds.mean())
        figures[f"{time}_decrease_spread_s"] = float(seconds.std())
    later = by_time["wait"][by_time["wait"] < -1.0]
    figures["waiting_longer_s"] = float(-later.mean()) if later.size else 0.0
    return figures


def histograms(ended: Sequence[Ended], before: Sequence[Ended]) -> dict[str, float]:
    """Per cent of the jobs in every bin of Figures 9 to 11, named by time and bin."""
    shares: dict[str, float] = {}
    for time, seconds in decreases(ended, before).items():
        edges = FIGURES[time][1]
        counts, _ = np.histogram(seconds, edges)
        for low, high, count in zip(edges, edges[1:], counts, strict=False):
            shares[f"{time}_percent.{bin_name(low, high)}"] = 100 * float(count) / len(seconds)
    return shares


def bin_name(low: float, high: float) -> str:
    """A bin in words: `60 to 3600 s`, `under -3600 s`, `over 86400 s`."""
    if low == -np.inf:
        return f"under {high:g} s"
    return f"over {low:g} s" if high == np.inf else f"{low:g} to {high:g} s"
