"""Figures as people read them: times in the unit that fits, shares in per cent."""

from __future__ import annotations

#: Units of time, the longest first.
UNITS = (("d", "days", 86_400.0), ("h", "hours", 3600.0), ("min", "minutes", 60.0))


def time(seconds: float) -> str:
    """`5.2 h`, in the longest unit of which there are at least two."""
    for short, _, length in UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {short}"
    return f"{seconds:.1f} s"


def unit(longest_s: float) -> tuple[str, float]:
    """(its name, its seconds): the unit for an axis that reaches so far."""
    for _, name, length in UNITS:
        if longest_s >= 2 * length:
            return name, length
    return "seconds", 1.0


def share(value: float) -> str:
    """`95.2 %` of 0.952."""
    return f"{100 * value:.1f} %"


def points(value: float) -> str:
    """`1.4 points` of 0.014: a difference of two shares."""
    return f"{100 * value:.1f} points"
