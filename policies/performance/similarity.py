"""Which profiled model stands in for one that was never profiled (GENIE, section 6).

The paper compares the graphs of TensorFlow models. What a site knows of a job here is its name
and, where somebody wrote it down, its family and size; they are compared instead. A
borrowed model is as uncertain as the likeness is poor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import exp, hypot, log

from policies.performance.nouns import PerformanceModel

#: Below this likeness nothing stands in for anything.
LEAST = 0.3
#: Standard deviation of log(step) that a model with nothing in common would add: a factor 10.
STRANGE = log(10)


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of a model besides its runs; `parameters_m` in millions."""

    name: str
    family: str = ""
    parameters_m: float | None = None


def likeness(one: Traits, other: Traits) -> float:
    """From 0 (nothing in common) to 1: the mean over what is known of both.

    Names by their common pairs of letters (Dice), families equal or not, sizes by their
    ratio; size counts twice.
    """
    parts = [(1.0, _names(one.name, other.name))]
    if one.family and other.family:
        parts.append((1.0, float(one.family.lower() == other.family.lower())))
    if one.parameters_m and other.parameters_m:
        parts.append((2.0, exp(-abs(log(one.parameters_m / other.parameters_m)))))
    return sum(weight * part for weight, part in parts) / sum(weight for weight, _ in parts)


def nearest(wanted: Traits, known: Iterable[Traits]) -> tuple[Traits, float] | None:
    """The likest model and its likeness; None where none is like enough. Ties: by name."""
    ranked = sorted((-likeness(wanted, traits), traits.name, traits) for traits in known)
    if not ranked or -ranked[0][0] < LEAST:
        return None
    return ranked[0][2], -ranked[0][0]


def borrowed(model: PerformanceModel, like: float) -> PerformanceModel:
    """The model with the uncertainty of standing in for another."""
    return replace(model, deviation=hypot(model.deviation, (1 - like) * STRANGE))


def _names(one: str, other: str) -> float:
    first, second = _pairs(one), _pairs(other)
    if not first or not second:
        return float(one.lower() == other.lower())
    return 2 * len(first & second) / (len(first) + len(second))


def _pairs(name: str) -> set[str]:
    letters = "".join(char for char in name.lower() if char.isalnum())
    return {letters[at : at + 2] for at in range(len(letters) - 1)}
