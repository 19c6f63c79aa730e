"""What an experiment is, and what it found."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from simulation.errors import SimulationError

#: {policy: {metric: value}}; times in seconds and named `..._s`. None: not given, not defined.
Figures = Mapping[str, Mapping[str, float | None]]
Series = Mapping[str, Mapping[str, Sequence[Sequence[float]]]]
#: Points of a curve; more cannot be seen.
POINTS = 200
#: Among an option's words: the path of any file does, too.
FILE = "FILE"


@dataclass(frozen=True, slots=True)
class Result:
    """What an experiment found, in the shape of its JSON."""

    experiment: str
    seeds: tuple[int, ...]
    measured: Figures
    #: What the paper prints of the same policies and metrics.
    paper: Figures
    #: Whatever was done otherwise than in the paper, one sentence each.
    notes: tuple[str, ...] = ()
    #: Every option with its word; the experiment's own function leaves this to `Experiment.run`.
    options: Mapping[str, str] = field(default_factory=dict)
    #: Points of plots, by plot and label: (x, y) of curves, (row, start, end, job) of a timeline.
    series: Series = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data for JSON."""
        return asdict(self)


def averaged(rows: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Means over the seeds; of several seeds each with its standard deviation as `..._sd`."""
    figures: dict[str, dict[str, float]] = {}
    for name, runs in rows.items():
        figures[name] = {}
        for metric in runs[0]:
            values = [run[metric] for run in runs]
            figures[name][metric] = fmean(values)
            if len(values) > 1:
                figures[name][f"{metric}_sd"] = stdev(values)
    return figures


def ranked(values: Sequence[float]) -> list[list[float]]:
    """(place, value) from the largest on, thinned to what a plot can show."""
    every = [[float(at), float(f"{v:.5g}")] for at, v in enumerate(sorted(values, reverse=True))]
    step = max(1, len(every) // POINTS)
    return [*every[:-1:step], every[-1]] if every else []


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment, which is not imported before it is run."""

    name: str
    summary: str
    #: `module:function`; the function takes the seeds and, by keyword, the options.
    where: str
    #: Used where no others are asked for; empty: nothing is drawn.
    seeds: tuple[int, ...] = (1,)
    #: Name of an option -> the words allowed, the default first. A `-` is a `_` to the function.
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: About how long the defaults take on one core: all experiments run the shortest first.
    minutes: float = 0.2

    def run(self, seeds: Sequence[int] | None = None, **options: str) -> Result:
        """Run it; SimulationError for an option or word it does not have."""
        chosen = {name: words[0] for name, words in self.options.items()}
        for key, word in options.items():
            name = key.replace("_", "-")
            words = self.options.get(name, ())
            if word == FILE or not (word in words or (FILE in words and Path(word).is_file())):
                allowed = ", ".join(self.options.get(name, ())) or "no such option"
                raise SimulationError(f"{self.name}: {name}={word!r}: expected {allowed}")
            chosen[name] = word
        module, _, function = self.where.partition(":")
        run: Callable[..., Result] = getattr(importlib.import_module(module), function)
        by_name = {name.replace("-", "_"): word for name, word in chosen.items()}
        result = run(tuple(self.seeds if seeds is None else seeds), **by_name)
        return replace(result, options=chosen)
