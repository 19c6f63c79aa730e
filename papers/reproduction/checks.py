"""Our figures against a paper's, or against each other: `near`, `at_most`, `at_least`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from papers.experiments import Figures


@dataclass(frozen=True, slots=True)
class Check:
    """One of our figures against one of the paper's, or against another of ours.

    A figure is a policy and a metric of the result's `measured`.
    """

    policy: str
    metric: str
    relation: Literal["near", "at most", "at least"]
    #: A number of the paper, or (policy, metric) of the same result.
    to: float | tuple[str, str]
    #: Factor on `to`.
    times: float = 1.0
    #: How far beyond the relation may be off, in the metric's own unit.
    off: float = 0.0

    def holds(self, measured: Figures) -> bool:
        """Whether the figures carry it; a figure that is missing carries nothing."""
        ours, target = figure(measured, self.policy, self.metric), self._target(measured)
        if ours is None or target is None:
            return False
        if self.relation == "near":
            return abs(ours - target) <= self.off
        beyond = ours - target if self.relation == "at most" else target - ours
        return beyond <= self.off

    def _target(self, measured: Figures) -> float | None:
        target = figure(measured, *self.to) if isinstance(self.to, tuple) else self.to
        return None if target is None else target * self.times

    @property
    def figures(self) -> list[tuple[str, str]]:
        """The figures of ours that it looks at."""
        return [(self.policy, self.metric), *([self.to] if isinstance(self.to, tuple) else [])]

    def expected(self) -> str:
        """The right side, as text."""
        factor = "" if self.times == 1 else f"{number(self.times)} x "
        if isinstance(self.to, tuple):
            policy, metric = self.to
            same = [policy] if policy != self.policy else []
            words = factor + " ".join([*same, *([metric] if metric != self.metric else [])])
        else:
            words = factor + number(self.to)
        slack = f" to within {number(self.off)}" if self.off and self.relation == "near" else ""
        return (words if self.relation == "near" else f"{self.relation} {words}") + slack


def near(policy: str, metric: str, paper: float, within: float, off: float = 0.0) -> Check:
    """Ours is the paper's number, within a share of it (0.05: 5 %) or `off` in its own unit."""
    return Check(policy, metric, "near", paper, off=off or abs(paper) * within)


def at_most(
    policy: str, metric: str, to: float | str | tuple[str, str], times: float = 1, off: float = 0
) -> Check:
    """Ours is no more than a number, the same metric of a policy, or another figure."""
    return Check(policy, metric, "at most", _to(to, metric), times, off)


def at_least(
    policy: str, metric: str, to: float | str | tuple[str, str], times: float = 1, off: float = 0
) -> Check:
    """Ours is no less than a number, the same metric of a policy, or another figure."""
    return Check(policy, metric, "at least", _to(to, metric), times, off)


def _to(to: float | str | tuple[str, str], metric: str) -> float | tuple[str, str]:
    return (to, metric) if isinstance(to, str) else to


def figure(measured: Figures, policy: str, metric: str) -> float | None:
    """One figure; None where there is none."""
    return measured.get(policy, {}).get(metric)


def number(value: float | None) -> str:
    """Four digits, or whole with commas from a thousand on; `-` for nothing."""
    if value is None:
        return "-"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def with_spread(measured: Figures, policy: str, metric: str) -> str:
    """A figure, and the standard deviation over the seeds where there is one."""
    spread = figure(measured, policy, f"{metric}_sd")
    value = figure(measured, policy, metric)
    if spread is not None and spread <= 1e-9 * abs(value or 0.0):
        spread = 0.0
    beside = "" if spread is None else f"{spread:.2g}" if spread < 100 else f"{spread:,.0f}"
    return number(value) + (f" ± {beside}" if beside else "")


def figures_of(checks: Sequence[Check]) -> list[tuple[str, str]]:
    """Every figure that some checks look at, once."""
    return list(dict.fromkeys(pair for check in checks for pair in check.figures))
