"""What an experiment is, what it found, and the registry that knows experiments by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any

from simulation.errors import SimulationError

#: {policy: {metric: value}}; times in seconds and named `..._s`. None: not given, not defined.
Figures = Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True, slots=True)
class Result:
    """What an experiment found, in the shape of its JSON.

    `paper` holds what the paper prints, by the same policies and metrics; whatever was
    done otherwise than in the paper stands in `notes`, one sentence each.
    """

    experiment: str
    seeds: tuple[int, ...]
    measured: Figures
    paper: Figures
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data for JSON."""
        return asdict(self)


def averaged(
    rows: Mapping[str, Sequence[Mapping[str, float]]],
) -> dict[str, dict[str, float]]:
    """Means over the seeds; of several seeds each with its standard deviation as `..._sd`."""
    found: dict[str, dict[str, float]] = {}
    for name, runs in rows.items():
        found[name] = {}
        for metric in runs[0]:
            values = [run[metric] for run in runs]
            found[name][metric] = fmean(values)
            if len(values) > 1:
                found[name][f"{metric}_sd"] = stdev(values)
    return found


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment: where it is, the seeds it uses by default, what can be chosen.

    `options` maps a name (`variant`) to the words allowed, the default first; the run gets
    them as keyword arguments with `-` written `_`.
    """

    name: str
    summary: str
    where: str
    seeds: tuple[int, ...] = (1,)
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def run(self, seeds: Sequence[int] | None = None, **options: str) -> Result:
        """Run it; SimulationError for an option or word it does not have."""
        chosen = {name: words[0] for name, words in self.options.items()}
        for key, word in options.items():
            name = key.replace("_", "-")
            if word not in self.options.get(name, ()):
                allowed = ", ".join(self.options.get(name, ())) or "no such option"
                raise SimulationError(f"{self.name}: {name}={word!r}: expected {allowed}")
            chosen[name] = word
        module, _, function = self.where.partition(":")
        run: Callable[..., Result] = getattr(importlib.import_module(module), function)
        words = {name.replace("-", "_"): word for name, word in chosen.items()}
        return run(tuple(self.seeds if seeds is None else seeds), **words)


class ExperimentRegistry:
    """Names -> experiments; a name is taken once."""

    def __init__(self) -> None:
        self._found: dict[str, Experiment] = {}

    def register(self, experiment: Experiment) -> None:
        """Add one; SimulationError if its name is taken."""
        if experiment.name in self._found:
            raise SimulationError(
                f"an experiment named {experiment.name!r} is registered already"
                f" ({self._found[experiment.name].where}); choose another name"
            )
        self._found[experiment.name] = experiment

    def get(self, name: str) -> Experiment:
        """The experiment of that name; SimulationError lists those there are."""
        try:
            return self._found[name]
        except KeyError:
            raise SimulationError(
                f"no experiment named {name!r}: expected one of {', '.join(self.names())}"
            ) from None

    def names(self) -> tuple[str, ...]:
        """All of them, in the order of registration."""
        return tuple(self._found)
