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


#: From so many values on Student's t hardly changes.
MANY = 1000


def needed(values: Sequence[float], error: float, half: float) -> int:
    """How many such values it takes until half the interval is `half` (over 0) at most."""
    spread = stdev(values)

    def is_enough(count: int) -> bool:
        return t_quantile(1 - error / 2, count - 1) * spread <= half * math.sqrt(count)

    if not is_enough(MANY):
        return math.ceil((t_quantile(1 - error / 2, MANY - 1) * spread / half) ** 2)
    return bisect_left(range(2, MANY), True, key=is_enough) + 2


@cache
def t_quantile(p: float, freedom: int) -> float:
    """Student's t: the value below which the share `p` (over a half) lies; by bisection."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_below(middle, freedom) < p else (low, middle)
    return high


def _t_below(t: float, freedom: int) -> float:
    """Student's distribution function for t >= 0: the finite series of whole degrees of freedom.

    Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
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
