"""What a paper says, and whether our figures carry it.

A `Row` is one table, figure or sentence of a paper, with the run that repeats it and the checks
that decide its verdict. A `Claim` is the one sentence that we say of an experiment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from simulation.experiments import Figures, experiments
from simulation.reproduction.pictures import Picture

REPRODUCED, PARTLY, NOT = "reproduced", "partly", "not"
NOT_RUN, NO_RESULT = "not run", "no result"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an experiment with options that are not the defaults."""

    experiment: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of its files: `rqueue-tsubame-year-implied`."""
        return "-".join([self.experiment, *(f"{key}-{word}" for key, word in self._varied())])

    @property
    def command(self) -> str:
        """What repeats it."""
        words = (f"--{key} {word}" for key, word in self._varied())
        return " ".join(["gputopo experiment", self.experiment, *words])

    def chosen(self) -> dict[str, str]:
        """Every option of the experiment with its word."""
        defaults = {name: words[0] for name, words in experiments[self.experiment].options.items()}
        return defaults | dict(self.options)

    def _varied(self) -> list[tuple[str, str]]:
        defaults = experiments[self.experiment].options
        return sorted((k, word) for k, word in self.options.items() if word != defaults[k][0])


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
        found = figure(measured, *self.to) if isinstance(self.to, tuple) else self.to
        return None if found is None else found * self.times

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


@dataclass(frozen=True, slots=True)
class Row:
    """One table, figure or sentence of a paper."""

    #: Where it stands: `Table 1`, `Figure 8`, `section 5.5.3`; several figures as `Figures 1, 7`.
    at: str
    #: What the paper shows or says there, with its figures.
    says: str
    #: The run that repeats it; None: nothing does, and `because` says why.
    run: Run | None = None
    #: All hold: reproduced. Some: partly. None: not.
    checks: tuple[Check, ...] = ()
    #: Why it is not reproduced, reproduced in part, or not run; what holds instead.
    because: str = ""
    #: The best that the checks can give: `partly` where the inputs are not the paper's.
    best: str = REPRODUCED
    #: A drawing, an example or a configuration: nothing was measured.
    is_result: bool = True

    def verdict(self, measured: Figures | None) -> str:
        """By what was measured; None: the run has not been made."""
        if not self.is_result:
            return NO_RESULT
        if self.run is None or measured is None:
            return NOT_RUN
        held = [check.holds(measured) for check in self.checks]
        return self.best if all(held) else PARTLY if any(held) else NOT


@dataclass(frozen=True, slots=True)
class Claim:
    """What is claimed of an experiment, in one sentence, and the checks that carry it."""

    run: Run
    sentence: str
    checks: tuple[Check, ...]

    def told(self, measured: Figures) -> str:
        """The sentence; or that these figures do not carry it, and which."""
        failed = [check for check in self.checks if not check.holds(measured)]
        if not failed:
            return f"Claimed: {self.sentence}"
        said = "; ".join(f"{one.policy} {one.metric} is not {one.expected()}" for one in failed)
        return f"Not carried by these figures: {self.sentence} ({said})"


@dataclass(frozen=True, slots=True)
class Sweep:
    """An experiment run with every word of an option that the paper does not print."""

    experiment: str
    option: str
    #: The figures to show: (policy, metric).
    figures: tuple[tuple[str, str], ...]
    #: The words that docs/reproduction.md shows; none: all.
    words: tuple[str, ...] = ()

    @property
    def runs(self) -> dict[str, Run]:
        """Word -> run."""
        words = self.words or experiments[self.experiment].options[self.option]
        return {word: Run(self.experiment, {self.option: word}) for word in words}


@dataclass(frozen=True, slots=True)
class Paper:
    """All that a paper shows and says, row by row."""

    name: str
    title: str
    #: How many figures and tables it has: every one has a row.
    figures: int
    tables: int
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...]
    #: Experiment -> pictures.
    pictures: Mapping[str, tuple[Picture, ...]]
    sweeps: tuple[Sweep, ...] = ()


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
