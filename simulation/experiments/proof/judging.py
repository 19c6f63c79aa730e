"""What counts in the proof, by how much, and with which certainty: docs/proof-plan.md in code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gres_topology import NodeTopology
from simulation.core.record import SimulatedRun
from simulation.report.intervals import half_width, needed
from simulation.report.metrics import SLO_SLOWDOWN, quantile, summary

OURS = "horizon"
#: All verdicts together are wrong with at most this probability (Bonferroni).
ERROR = 0.05
#: A run shorter than this counts as one so long in a bounded slowdown (Feitelson, JSSPP 2001).
BOUND_S = 10.0

#: {metric: value} of one run; {policy: one of them per resampling} of a cell.
Row = Mapping[str, float]
Cell = Mapping[str, Sequence[Row]]


@dataclass(frozen=True, slots=True)
class Primary:
    """A figure that is judged. `margin`: (best other's value, mean duration) -> what is as good."""

    label: str
    margin: Callable[[float, float], float]
    #: Whether more is worse.
    is_cost: bool = True


def _of_wait(part: float) -> Callable[[float, float], float]:
    return lambda best, duration_s: max(part * best, 0.01 * duration_s)


PRIMARY: Mapping[str, Primary] = {
    "wait_mean_s": Primary("mean wait", _of_wait(0.02)),
    "wait_p99_s": Primary("p99 wait", _of_wait(0.05)),
    "bandwidth_share": Primary("share of ideal bandwidth", lambda *_: 0.005, is_cost=False),
    "slo": Primary("SLO violations", lambda *_: 0.01),
}
SECONDARY = {
    "wait_p95_s": "p95 wait", "bounded_slowdown": "bounded slowdown", "pcie_rings": "PCIe rings",
}  # fmt: skip


def row_of(run: SimulatedRun, cluster: Mapping[str, NodeTopology]) -> dict[str, float]:
    """The figures of one run; shares from 0 to 1, no links that differ count as ideal."""
    numbers = summary(run, cluster)
    share, rings = numbers["bandwidth_share"], numbers["pcie_rings"]
    runs_s = [record.end_s - record.start_s for record in run.records]
    return {
        "wait_mean_s": fmean(record.waited_s for record in run.records),
        "wait_p99_s": quantile([record.waited_s for record in run.records], 0.99),
        "bandwidth_share": 1.0 if share is None else share,
        "slo": fmean(record.slowdown > SLO_SLOWDOWN for record in run.records),
        "wait_p95_s": quantile([record.waited_s for record in run.records], 0.95),
        "bounded_slowdown": fmean(
            max(1.0, (record.waited_s + took) / max(took, BOUND_S))
            for record, took in zip(run.records, runs_s, strict=True)
        ),
        "pcie_rings": 0.0 if rings is None else rings,
        "ideal_s": fmean(record.ideal_s or 0.0 for record in run.records),
    }


@dataclass(frozen=True, slots=True)
class Verdict:
    """How ours stands against the best of the others in one figure of one cell."""

    metric: str
    other: str
    ours_value: float
    other_value: float
    #: By how much ours is worse on average (below 0: better), and half its interval.
    behind: float
    half: float
    margin: float
    #: How many resamplings like these it takes until the interval is no wider than the margin.
    needed: int

    @property
    def is_behind(self) -> bool:
        """Whether it is worse on average by more than the margin."""
        return self.behind > self.margin

    @property
    def word(self) -> str:
        """`worse`: beyond margin and interval; `better`; `not worse`: within the margin for sure.

        `open`: neither is certain.
        """
        if self.is_behind and self.behind - self.half > 0:
            return "worse"
        if self.behind + self.half < 0:
            return "better"
        return "not worse" if self.behind + self.half <= self.margin else "open"


def verdicts(cell: Cell, comparisons: int, ours: str = OURS) -> list[Verdict]:
    """One for each primary figure; `comparisons` is how many there are on the page in all."""
    return [_verdict(cell, ours, metric, ERROR / comparisons) for metric in PRIMARY]


def _verdict(cell: Cell, ours: str, metric: str, error: float) -> Verdict:
    primary = PRIMARY[metric]
    sign = 1.0 if primary.is_cost else -1.0
    means = {name: fmean(row[metric] for row in rows) for name, rows in cell.items()}
    others = sorted(name for name in means if name != ours)
    other = min(others, key=lambda name: sign * means[name])
    behind = [
        sign * (own[metric] - theirs[metric])
        for own, theirs in zip(cell[ours], cell[other], strict=True)
    ]
    duration_s = fmean(row["ideal_s"] for row in cell[ours])
    half = half_width(behind, error)
    margin = primary.margin(means[other], duration_s)
    return Verdict(metric, other, means[ours], means[other], fmean(behind), half, margin,
                   needed(behind, error, margin))  # fmt: skip
