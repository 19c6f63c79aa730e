"""What a paper says, and whether our figures carry it.

A `Row` is one table, figure or sentence of a paper, with the run that repeats it and the checks
that decide its verdict. A `Claim` is the one sentence that we say of an experiment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from papers.experiments import Figures, experiments
from papers.reproduction.checks import Check
from papers.reproduction.plots import Plot
from papers.reproduction.rule import PARTLY, REPRODUCED, verdict

NOT_RUN, NO_RESULT = "not run", "no result"
#: Policies whose formula is not the paper's as printed (docs/policies/topo-aware.md).
CORRECTED = ("topo-aware", "topo-aware-p")


@dataclass(frozen=True, slots=True)
class ExperimentRun:
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
class Row:
    """One table, figure or sentence of a paper."""

    #: Where it stands: `Table 1`, `Figure 8`, `section 5.5.3`; several figures as `Figures 1, 7`.
    at: str
    #: What the paper shows or says there, with its figures.
    says: str
    #: The run that repeats it; None: nothing does, and `because` says why.
    run: ExperimentRun | None = None
    #: What the paper prints and says there, by the rule.
    checks: tuple[Check, ...] = ()
    #: Why it is not reproduced, reproduced in part, or not run; what holds instead.
    because: str = ""
    #: The best that the checks can give: `partly` where the inputs are not the paper's.
    best: str = REPRODUCED
    #: A drawing, an example or a configuration, or judged in another row.
    is_result: bool = True

    @property
    def has_corrected_formula(self) -> bool:
        """Whether it looks at a policy that is not the paper's formula as printed."""
        policies = {policy for check in self.checks for policy, _ in check.figures}
        return not policies.isdisjoint(CORRECTED)

    def verdict(self, measured: Figures | None) -> str:
        """By what was measured; None: the run has not been made."""
        if not self.is_result:
            return NO_RESULT
        if self.run is None or measured is None:
            return NOT_RUN
        figures = [one.holds(measured) for one in self.checks if one.is_printed]
        statements = [one.holds(measured) for one in self.checks if not one.is_printed]
        found = verdict(figures, statements)
        best = PARTLY if self.has_corrected_formula else self.best
        return best if found == REPRODUCED else found


@dataclass(frozen=True, slots=True)
class Claim:
    """What is claimed of an experiment, in one sentence, and the checks that carry it."""

    run: ExperimentRun
    sentence: str
    checks: tuple[Check, ...]

    def stated(self, measured: Figures) -> str:
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
    def runs(self) -> dict[str, ExperimentRun]:
        """Word -> run."""
        words = self.words or experiments[self.experiment].options[self.option]
        return {word: ExperimentRun(self.experiment, {self.option: word}) for word in words}


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
    #: Experiment -> plots.
    plots: Mapping[str, tuple[Plot, ...]]
    sweeps: tuple[Sweep, ...] = ()
