"""How long things take in the engine: histograms, which the metrics show (docs/metrics.md).

Whoever does a thing adds its seconds, always from the same thread; another one may copy them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

#: Upper bounds in seconds: of what people wait for without noticing, and of what they notice.
FAST_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01),
    *(0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
SLOW_S = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


class Histogram:
    """Counts durations by buckets; a bound belongs to the bucket below it, as in Prometheus."""

    def __init__(self, bounds_s: Sequence[float] = FAST_S) -> None:
        self.bounds_s = tuple(bounds_s)
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0

    def add(self, seconds: float) -> None:
        """One thing took so long; a clock that was set back gives 0."""
        seconds = max(0.0, seconds)
        self._counts[bisect_left(self.bounds_s, seconds)] += 1
        self._sum_s += seconds

    def cumulative(self) -> tuple[list[tuple[str, int]], float]:
        """(upper bound, how many took at most as long) with "+Inf" last; the sum in seconds."""
        buckets, so_far = [], 0
        for bound, count in zip((*self.bounds_s, "+Inf"), list(self._counts), strict=True):
            so_far += count
            buckets.append((str(bound), so_far))
        return buckets, self._sum_s


class Telemetry:
    """What the loops and Slurm's client observe; it lives on from one configuration to the next."""

    def __init__(self) -> None:
        #: Readings of Slurm's queue and nodes, by how they ended: "ok" or "failed".
        self.slurm_reads = {"ok": Histogram(), "failed": Histogram()}
        #: From the reading that shows room for a job behind a gate until Slurm took its release.
        self.gate_releases = Histogram()
        #: From a job's submit until it was let through its gate.
        self.gate_waits = Histogram(SLOW_S)
        #: From the making of a loan until its borrower was let start.
        self.loan_setups = Histogram(SLOW_S)
        #: Polls that failed, by the name of the loop.
        self.failed_polls: Counter[str] = Counter()
