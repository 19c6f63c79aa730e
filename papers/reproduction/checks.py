"""Our figures against a paper's, or against each other.

Rows have `printed`, `ratio`, `alike`, `less`, `more` and `none`, by the rule of `rule`; what we
claim has `near`, `at_most` and `at_least`, with bounds of our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from papers.experiments import Figures
from papers.reproduction.rule import SHARE, is_less, tolerance


@dataclass(frozen=True, slots=True)
class Check:
    """One of our figures against one of the paper's, or against another of ours.

    A figure is a policy and a metric of the result's `measured`.
    """

    policy: str
    metric: str
    relation: Literal["near", "at most", "at least", "less than", "more than"]
    #: A number of the paper, or (policy, metric) of the same result.
    to: float | tuple[str, str]
    #: Factor on `to`.
    times: float = 1.0
    #: How far beyond the relation may be off, in the metric's own unit.
    off: float = 0.0
    #: What ours is divided by: (policy, metric) of the same result.
    over: tuple[str, str] | None = None
    #: A figure of the rule's: the paper prints the number.
    is_printed: bool = False

    def holds(self, measured: Figures) -> bool:
        """Whether the figures carry it; a figure that is missing carries nothing."""
        ours, target = self.value(measured), self._target(measured)
        if ours is None or target is None:
            return False
        if self.relation in ("less than", "more than"):
            pair = (ours, target) if self.relation == "less than" else (target, ours)
            return is_less(*pair, *(figure(measured, p, f"{m}_sd") or 0 for p, m in self.figures))
        if self.relation == "near":
            return abs(ours - target) <= self.off
        beyond = ours - target if self.relation == "at most" else target - ours
        return beyond <= self.off

    def value(self, measured: Figures) -> float | None:
        """Ours, or its ratio to what it is divided by."""
        ours = figure(measured, self.policy, self.metric)
        if self.over is None or ours is None:
            return ours
        below = figure(measured, *self.over)
        return ours / below if below else None

    def _target(self, measured: Figures) -> float | None:
        target = figure(measured, *self.to) if isinstance(self.to, tuple) else self.to
        return None if target is None else target * self.times

    @property
    def figures(self) -> list[tuple[str, str]]:
        """The figures of ours that it looks at."""
        others = [one for one in (self.to, self.over) if isinstance(one, tuple)]
        return [(self.policy, self.metric), *others]

    def name(self) -> str:
        """The left side, as text."""
        over = "" if self.over is None else f" over {self._other(self.over)}"
        return f"{self.policy}, `{self.metric}`{over}"

    def expected(self) -> str:
        """The right side, as text."""
        factor = "" if self.times == 1 else f"{number(self.times)} x "
        words = factor + (self._other(self.to) if isinstance(self.to, tuple) else number(self.to))
        slack = f" to within {number(self.off)}" if self.off and self.relation == "near" else ""
        return (words if self.relation == "near" else f"{self.relation} {words}") + slack

    def _other(self, pair: tuple[str, str]) -> str:
        policy, metric = pair
        same = [policy] if policy != self.policy else []
        return " ".join([*same, *([metric] if metric != self.metric else [])])


_Figure = str | tuple[str, str]


def printed(policy: str, metric: str, paper: str) -> Check:
    """Ours is the figure that the paper prints: all its digits say how exact it is."""
    return Check(policy, metric, "near", float(paper), off=tolerance(paper), is_printed=True)


def ratio(policy: str, metric: str, paper: str, over: _Figure | None = None) -> Check:
    """Ours, or ours over another figure, is the ratio that the paper prints."""
    off = tolerance(paper, same=1)
    pair = None if over is None else _pair(over, metric)
    return Check(policy, metric, "near", float(paper), off=off, over=pair, is_printed=True)


def alike(policy: str, metric: str, over: _Figure | None = None) -> Check:
    """Ours is a ratio that is about 1, or another figure is about as large."""
    pair = None if over is None else _pair(over, metric)
    return Check(policy, metric, "near", 1.0, off=SHARE, over=pair)


def less(policy: str, metric: str, to: float | _Figure) -> Check:
    """Ours is less than another figure, or than a bound that the paper states."""
    return Check(policy, metric, "less than", _to(to, metric))


def more(policy: str, metric: str, to: float | _Figure) -> Check:
    """Ours is more than another figure, or than a bound that the paper states."""
    return Check(policy, metric, "more than", _to(to, metric))


def none(policy: str, metric: str) -> Check:
    """The paper says that there is none, or nothing."""
    return Check(policy, metric, "at most", 0.0)


def near(policy: str, metric: str, paper: float, within: float) -> Check:
    """Ours is the paper's number, within a share of it (0.05: 5 %)."""
    return Check(policy, metric, "near", paper, off=abs(paper) * within)


def at_most(
    policy: str, metric: str, to: float | _Figure, times: float = 1, off: float = 0
) -> Check:
    """Ours is no more than a number, the same metric of a policy, or another figure."""
    return Check(policy, metric, "at most", _to(to, metric), times, off)


def at_least(
    policy: str, metric: str, to: float | _Figure, times: float = 1, off: float = 0
) -> Check:
    """Ours is no less than a number, the same metric of a policy, or another figure."""
    return Check(policy, metric, "at least", _to(to, metric), times, off)


def _to(to: float | _Figure, metric: str) -> float | tuple[str, str]:
    return to if isinstance(to, float | int) else _pair(to, metric)


def _pair(figure: _Figure, metric: str) -> tuple[str, str]:
    return (figure, metric) if isinstance(figure, str) else figure


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
