"""The rule by which a row of docs/reproduction.md gets its verdict; nothing else gives one."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

REPRODUCED, PARTLY, DIRECTION, NOT = "reproduced", "partly", "direction only", "not"
#: How far off a printed figure may be where the paper states no variation.
SHARE = 0.1

RULE = """A row has *figures*, numbers that the paper prints there, and *statements*: which of
two is less, that a bound is kept, that two are alike.

- *reproduced*: every figure is within its tolerance, and every statement holds.
- *partly*: at least one figure is within its tolerance.
- *direction only*: no figure is, or none is printed, and every statement holds.
- *not*: anything else.

How a figure and a statement are judged:

- A figure's tolerance is 10 % of it; of a ratio (a speedup, a slowdown, a throughput over
  another) 10 % of what it differs from 1. It is at least half a unit of the last digit printed.
  Where the paper states how much its figure varies, that is the tolerance instead.
- *Less* and *more* are strict. Over several seeds the two lie further apart than their standard
  deviations together.
- Words for sameness (*even*, *similar*, *equivalent*, *near*) are statements: alike to within a
  tenth. So are *none* and *no*: at most 0. They are no printed figures.
- A figure or a statement counts once, in the row of the place where the paper has it. Two figures
  of which one follows from the other by what is put in here (a makespan, and its ratio to one
  that the workload is scaled to) are one: the ratio.
- What we chose ourselves (a bound, a threshold, another reading or workload) lifts no verdict.
  What is put in is not reproduced by coming out again: such a row is *not run*. Where the
  algorithm or the inputs are not the paper's, the verdict is *partly* at best."""


def tolerance(printed: str, *, same: float = 0.0) -> float:
    """How far off the figure may be; `same` is what it would be without any effect, 1 of a ratio.

    The figure is as printed, with all its digits: they are its precision.
    """
    exponent = Decimal(printed).as_tuple().exponent
    half_a_unit = 0.5 * 10.0 ** int(exponent)
    return max(SHARE * abs(float(printed) - same), half_a_unit)


def is_less(ours: float, other: float, *spreads: float) -> bool:
    """Whether one figure is less than another, beyond the standard deviations of both."""
    return other - ours > sum(spreads)


def verdict(figures: Sequence[bool], statements: Sequence[bool]) -> str:
    """By which of a row's figures are within their tolerance, and which statements hold."""
    if figures and all(figures) and all(statements):
        return REPRODUCED
    if any(figures):
        return PARTLY
    return DIRECTION if statements and all(statements) else NOT
