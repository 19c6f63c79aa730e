"""One figure of a benchmark, and how it is printed: one JSON object per line."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

#: A benchmark yields its figures as it gets them.
Benchmark = Callable[[], Iterator["Figure"]]


@dataclass(frozen=True)
class Figure:
    """A measured value beside its bar."""

    name: str
    value: float
    unit: str
    bar: str | None = None
    #: Whether the bar is met; None where there is none.
    ok: bool | None = None
    #: What else was measured in the same run, and what it gave.
    compared_with: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """The figure as one line of JSON."""
        return json.dumps(asdict(self), separators=(", ", ": "))


def at_most(name: str, value: float, unit: str, limit: float | None, **more: Any) -> Figure:
    """A figure that must not exceed its bar, if it has one."""
    if limit is None:
        return Figure(name, round(value, 4), unit, **more)
    return Figure(name, round(value, 4), unit, f"<= {limit:g}", bool(value <= limit), **more)


def at_least(name: str, value: float, unit: str, limit: float | None, **more: Any) -> Figure:
    """A figure that must reach its bar, if it has one."""
    if limit is None:
        return Figure(name, round(value, 4), unit, **more)
    return Figure(name, round(value, 4), unit, f">= {limit:g}", bool(value >= limit), **more)


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile by the nearest rank: no value is invented between two."""
    if not values:
        raise ValueError("no values to take a quantile of; the benchmark measured nothing")
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, max(0, math.ceil(q * len(ranked)) - 1))]


def conditions() -> dict[str, Any]:
    """What a time depends on besides the code: the cores, and how busy they were."""
    return {"cores": os.cpu_count(), "load_1min": round(os.getloadavg()[0], 2)}
