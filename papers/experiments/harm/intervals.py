"""How sure a mean is that was found in several runs, or in several parts of one."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from statistics import fmean, stdev


def half_width(values: Sequence[float], error: float) -> float:
    """Half the interval in which the true mean lies but for the probability `error`.

    Student's, for values that do not depend on each other; 0 for one alone.
    """
    if len(values) < 2:
        return 0.0
    return t_quantile(1 - error / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))


def ratio(values: Sequence[float], others: Sequence[float], error: float) -> tuple[float, float]:
    """The mean of values over that of others, found in pairs, and half its interval.

    Cochran, Sampling Techniques (1977), section 2.11: by what each pair departs from the ratio.
    The ratio of nothing to nothing is 1.
    """
    mean, other = fmean(values), fmean(others)
    if other == 0:
        return (1.0 if mean == 0 else math.inf), 0.0
    departs = [mine - mean / other * its for mine, its in zip(values, others, strict=True)]
    return mean / other, half_width(departs, error) / other


def chance_below(values: Sequence[float]) -> float:
    """How likely so low a mean is by chance where the true one is 0 (one-sided t test)."""
    spread = stdev(values)
    if spread == 0:
        return 0.0 if fmean(values) < 0 else 1.0
    return t_below(fmean(values) * math.sqrt(len(values)) / spread, len(values) - 1)


def power(values: Sequence[float], error: float, distance: float) -> float:
    """How likely `chance_below` is under `error` where the true mean lies `distance` below 0.

    For values that scatter like these; Student's t in the place of the noncentral one.
    """
    spread, freedom = stdev(values), len(values) - 1
    if spread == 0:
        return 1.0
    return t_below(
        distance * math.sqrt(len(values)) / spread - t_quantile(1 - error, freedom), freedom
    )


def seen(values: Sequence[float], error: float, sure: float) -> float:
    """The distance from 0 that has `sure` as its power; sure is over a half."""
    reach = _reach(error, sure, len(values) - 1)
    return reach * stdev(values) / math.sqrt(len(values))


def _reach(error: float, sure: float, freedom: int) -> float:
    """How many standard errors a difference must be to be seen: `error` wrong, `sure` found."""
    return t_quantile(1 - error, freedom) + t_quantile(sure, freedom)


def needed_to_see(values: Sequence[float], error: float, sure: float, distance: float) -> int:
    """How many such values it takes until `seen` is no more than `distance` (over 0)."""
    spread = stdev(values)

    def is_enough(count: int) -> bool:
        return _reach(error, sure, count - 1) * spread <= distance * math.sqrt(count)

    if not is_enough(MANY):
        return math.ceil((_reach(error, sure, MANY - 1) * spread / distance) ** 2)
    return bisect_left(range(2, MANY), True, key=is_enough) + 2


def holm(chances: Sequence[float], error: float) -> list[bool]:
    """Which of several hypotheses fall, all verdicts together wrong with `error` at most.

    Holm, Scandinavian Journal of Statistics 6 (1979): the least chance first, each next one
    beside fewer.
    """
    falls = [False] * len(chances)
    for left, at in zip(
        range(len(chances), 0, -1),
        sorted(range(len(chances)), key=chances.__getitem__),
        strict=True,
    ):
        if chances[at] > error / left:
            break
        falls[at] = True
    return falls


#: From so many values on Student's t hardly changes.
MANY = 1000


@cache
def t_quantile(p: float, freedom: int) -> float:
    """Student's t: the value below which the share `p` (over a half) lies; by bisection."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_below(middle, freedom) < p else (low, middle)
    return high


def t_below(t: float, freedom: int) -> float:
    """Student's distribution function: the finite series of whole degrees of freedom.

    Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    if t < 0:
        return 1 - t_below(-t, freedom)
    angle = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    if freedom % 2:
        term, total = cosine, 0.0
        for at in range(1, freedom - 1, 2):
            total += term
            term *= cosine * cosine * (at + 1) / (at + 2)
        within = 2 / math.pi * (angle + sine * total)
    else:
        term, total = 1.0, 0.0
        for at in range(0, freedom - 1, 2):
            total += term
            term *= cosine * cosine * (at + 1) / (at + 2)
        within = sine * total
    return 0.5 + within / 2
