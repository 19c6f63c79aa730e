"""Axes of charts: from values to places, ticks at round numbers, the frame around a chart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gres_topology.pictures.legend import LegendEntry, legend
from gres_topology.pictures.svg import Picture, Svg, element, shortened, words

#: The area inside the axes, and what is left of it and above it.
WIDTH, HEIGHT = 560.0, 230.0
LEFT, TOP, BOTTOM = 66.0, 44.0, 46.0
#: Differences below this part of the greatest value are rounding of the computer's.
_ROUNDING = 1e-9
#: And a range so small is none: its parts cannot be told from 0.
_LEAST = 1e-300


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` over `length` points.

    A logarithmic one is linear up to 1, so that it has a place for 0 and for values below it.
    """

    low: float
    high: float
    length: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """How far along the axis the value is."""
        low, high = self._bent(self.low), self._bent(self.high)
        return self.length * (self._bent(value) - low) / (high - low)

    def _bent(self, value: float) -> float:
        if not self.is_log:
            return value
        part = abs(value)
        return math.copysign(part if part <= 1 else 1 + math.log10(part), value)

    def ticks(self) -> list[float]:
        """About five round numbers; powers of ten on a logarithmic scale."""
        if self.is_log:
            most = max(abs(self.low), abs(self.high), 1.0)
            powers = [10.0**at for at in range(math.ceil(math.log10(most)) + 1)]
            ticks = sorted([*(-power for power in powers), 0.0, *powers])
        else:
            rough = (self.high - self.low) / 5
            power = 10.0 ** math.floor(math.log10(rough))
            step = power * next(one for one in (1, 2, 2.5, 5, 10) if one * power >= rough * 0.999)
            first = math.ceil(self.low / step - 1e-6)
            ticks = [step * at for at in range(first, math.floor(self.high / step + 1e-6) + 1)]
        return [tick for tick in ticks if self.low <= tick <= self.high * (1 + 1e-9)]


def scale_of(
    values: Iterable[float], length: float, *, is_log: bool = False, from_zero: bool = True
) -> Scale:
    """A scale that holds the values, and 0 unless told otherwise.

    Values that differ by rounding alone count as equal, so that no axis is stretched over noise.
    """
    known = [value for value in values if math.isfinite(value)] + ([0.0] if from_zero else [])
    low, high = min(known, default=0.0), max(known, default=0.0)
    if high - low <= max(_ROUNDING * max(abs(low), abs(high)), _LEAST):
        high = low + 1.0
    room = 0.0 if is_log else 0.04 * (high - low)
    return Scale(low - (room if low < 0 else 0.0), high + room, length, is_log)


def named(value: float) -> str:
    """A tick's number: 0.5, 20, 1,500, 2e+06."""
    return f"{value:,.10g}" if abs(value) < 1e6 else f"{value:g}"


def grid(x: Scale | None, y: Scale | None, height: float = HEIGHT) -> list[Svg]:
    """Lines across the area at the ticks of each axis that is given, and their numbers."""
    parts = []
    for tick in y.ticks() if y else ():
        at = height - y.place(tick) if y else 0.0
        parts += [
            element("path", class_="gt-grid", d=f"M0 {at:.1f}h{WIDTH:g}"),
            words(named(tick), -8.0, at + 4, 11, "soft", anchor="end"),
        ]
    for tick in x.ticks() if x else ():
        at = x.place(tick) if x else 0.0
        parts += [
            element("path", class_="gt-grid", d=f"M{at:.1f} 0v{height:g}"),
            words(named(tick), at, height + 16, 11, "soft", anchor="middle"),
        ]
    return parts


def framed(
    title: str,
    parts: Sequence[Svg],
    entries: Sequence[LegendEntry],
    *,
    x: str = "",
    y: str = "",
    desc: str = "",
    height: float = HEIGHT,
    left: float = LEFT,
) -> Picture:
    """The whole chart: heading, the area with its axes' names, and the legend to its right."""
    table, legend_w, legend_h = legend(entries)
    right = left + WIDTH + 22
    texts = [
        words(shortened(title, 100), 10.0, 22, 14, weight="bold"),
        words(y, 10.0, 38, 11, "soft"),
        words(x, left + WIDTH / 2, TOP + height + 34, 11, "soft", anchor="middle"),
    ]
    border = element("path", class_="gt-faint", d=f"M0 0V{height:g}H{WIDTH:g}")
    full_w = right + legend_w + 12 if entries else left + WIDTH + 26
    return Picture(
        [
            *texts,
            element("g", *parts, border, transform=f"translate({left:g} {TOP:g})"),
            element("g", *table, transform=f"translate({right:g} {TOP + 10:g})"),
        ],
        round(full_w),
        round(max(TOP + height + BOTTOM, TOP + legend_h + 10)),
        title,
        desc,
    )


def in_words(series: Mapping[str, Sequence[float]], unit: str) -> str:
    """Each series' least and greatest value, for those who do not see the chart."""
    said = []
    for name, values in series.items():
        known = [value for value in values if math.isfinite(value)]
        if known:
            said.append(f"{name}: {min(known):,.4g} to {max(known):,.4g} {unit}".rstrip())
    return "; ".join(said)
