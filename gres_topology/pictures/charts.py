"""Charts with a legend: bars, lines and points, which differ in more than their colours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gres_topology.pictures import theme
from gres_topology.pictures.legend import LegendEntry, box_entry
from gres_topology.pictures.scale import (
    HEIGHT,
    WIDTH,
    Scale,
    framed,
    grid,
    in_words,
    scale_of,
)
from gres_topology.pictures.svg import Picture, Svg, element, rect, shortened, words

#: Series -> its values, one per group; None or not a number: there is none.
Values = Mapping[str, Sequence[float | None]]
Points = Sequence[tuple[float, float]]


def look(number: int) -> tuple[str, int]:
    """Colour class and pattern of the bars of series `number`."""
    return f"job{number % len(theme.JOBS)}", number


def numbers(values: Sequence[float | None]) -> list[float]:
    """The values; not a number where there is none."""
    return [math.nan if value is None else float(value) for value in values]


def bars(
    title: str,
    groups: Sequence[str],
    series: Values,
    *,
    x: str = "",
    y: str = "",
    spread: Values | None = None,
    crosses: Values | None = None,
    crosses_mean: str = "",
    is_log: bool = False,
) -> Picture:
    """A bar per series in each group.

    `spread` is drawn as an error bar to both sides, `crosses` are values to compare with.
    """
    known = {name: numbers(values) for name, values in series.items()}
    spreads = {name: numbers(values) for name, values in (spread or {}).items()}
    marks = {name: numbers(values) for name, values in (crosses or {}).items()}
    nothing = [0.0] * len(groups)
    tops = [
        value + (more if math.isfinite(more) else 0)
        for name, values in known.items()
        for value, more in zip(values, spreads.get(name, nothing), strict=True)
    ]
    every = [*tops, *(v for some in (*known.values(), *marks.values()) for v in some)]
    scale = scale_of(every, HEIGHT, is_log=is_log)
    parts, room = grid(None, scale), WIDTH / max(1, len(groups))
    width = 0.84 * room / max(1, len(known))
    for number, (name, values) in enumerate(known.items()):
        for group, value in enumerate(values):
            left = group * room + 0.08 * room + number * width
            middle = left + width / 2
            if math.isfinite(value):
                parts += _bar(number, left, width, scale, value)
                parts += _whisker(middle, scale, value, spreads.get(name, nothing)[group])
            cross = marks.get(name, [math.nan] * len(groups))[group]
            if math.isfinite(cross):
                parts.append(_cross(middle, HEIGHT - scale.place(cross)))
    parts += group_names(groups)
    entries = [box_entry(*look(number), name) for number, name in enumerate(known)]
    if marks:
        entries.append(LegendEntry([_cross(22, 0)], crosses_mean))
    return framed(title, parts, entries, x=x, y=y, desc=in_words(known, y))


def group_names(groups: Sequence[str]) -> list[Svg]:
    """The groups' names below the axis."""
    room = WIDTH / max(1, len(groups))
    most = max(4, round(room / 6.2))
    return [
        words(shortened(str(group), most), (at + 0.5) * room, HEIGHT + 16, 11, anchor="middle")
        for at, group in enumerate(groups)
    ]


def _bar(number: int, left: float, width: float, scale: Scale, value: float) -> list[Svg]:
    zero, top = HEIGHT - scale.place(0.0), HEIGHT - scale.place(value)
    name, hatch = look(number)
    high, low = min(zero, top), max(zero, top)
    if high == low:
        return []
    gap = min(1.5, width / 10)
    box = rect(name, left + gap, high, width - 2 * gap, low - high, stroke_width=0.8)
    if width < 9 or low - high < 8:
        return [box]
    side = min(8, int(width - 2 * gap - 2))
    rows = int((low - high - 3) // (side + 2))
    path = "".join(
        theme.hatch(
            hatch,
            round(left + gap + 1),
            round(low - 2 - (row + 1) * (side + 2)),
            width - 2 * gap - 2,
            side,
        )
        for row in range(min(rows, 40))
    )
    return (
        [box, element("path", class_=f"gt-{name}-hatch", d=path, stroke_width=1)] if path else [box]
    )


def _whisker(at: float, scale: Scale, value: float, spread: float) -> list[Svg]:
    if not spread or not math.isfinite(spread):
        return []
    high, low = (HEIGHT - scale.place(max(scale.low, v)) for v in (value + spread, value - spread))
    path = f"M{at - 3:.1f} {high:.1f}h6M{at:.1f} {high:.1f}V{low:.1f}M{at - 3:.1f} {low:.1f}h6"
    return [element("path", class_="gt-edge", d=path)]


def _cross(x: float, y: float) -> Svg:
    return element(
        "path",
        class_="gt-edge",
        stroke_width=2,
        d=f"M{x - 4:.1f} {y - 4:.1f}l8 8M{x - 4:.1f} {y + 4:.1f}l8 -8",
    )


def lines(
    title: str,
    series: Mapping[str, Points],
    *,
    x: str = "",
    y: str = "",
    is_step: bool = False,
    has_dots: bool = False,
    is_log: bool = False,
    is_log_x: bool = False,
    from_zero: bool = True,
    spread: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    crosses: Mapping[str, Points] | None = None,
    crosses_mean: str = "",
) -> Picture:
    """A line per series through its points (x, y), which are in ascending x.

    A step keeps each value until the next point. `spread` has a pair (below, above) per point.
    """
    marks = [point for points in (crosses or {}).values() for point in points]
    points = [*(point for points in series.values() for point in points), *marks]
    across = scale_of((at for at, _ in points), WIDTH, is_log=is_log_x, from_zero=False)
    errors = [
        at + more
        for name, some in (spread or {}).items()
        for (_, at), (_, more) in zip(series[name], some, strict=True)
    ]
    up = scale_of([*(v for _, v in points), *errors], HEIGHT, is_log=is_log, from_zero=from_zero)
    parts, entries = grid(across, up), []
    for number, (name, some) in enumerate(series.items()):
        places = [(across.place(at), HEIGHT - up.place(v)) for at, v in some if math.isfinite(v)]
        parts.append(_line(number, places, is_step=is_step))
        if has_dots:
            parts += [
                element("circle", class_=f"gt-dot{number % len(theme.JOBS)}", cx=a, cy=b, r=3)
                for a, b in places
            ]
        for (at, value), (below, above) in zip(some, (spread or {}).get(name, ()), strict=False):
            parts += _whisker(
                across.place(at), up, value + (above - below) / 2, (above + below) / 2
            )
        entries.append(LegendEntry([_line(number, [(0, 0), (44, 0)])], name))
    parts += [_cross(across.place(at), HEIGHT - up.place(value)) for at, value in marks]
    entries += [LegendEntry([_cross(22, 0)], crosses_mean)] if marks else []
    said = in_words({name: [v for _, v in some] for name, some in series.items()}, y)
    return framed(title, parts, entries, x=x, y=y, desc=said)


def _line(number: int, places: Sequence[tuple[float, float]], *, is_step: bool = False) -> Svg:
    path = ""
    for at, (x, y) in enumerate(places):
        if not at:
            path = f"M{x:.1f} {y:.1f}"
        else:
            path += f"H{x:.1f}V{y:.1f}" if is_step else f"L{x:.1f} {y:.1f}"
    dash = theme.LINE_DASHES[number % len(theme.LINE_DASHES)] or None
    return element(
        "path",
        class_=f"gt-series{number % len(theme.JOBS)}",
        d=path,
        stroke_width=2,
        stroke_dasharray=dash,
    )


def scatter(
    title: str, series: Mapping[str, Sequence[tuple[float, float, str]]], *, x: str, y: str
) -> Picture:
    """Points (x, y, name), and the line on which both are equal; one scale for both axes."""
    every = [value for points in series.values() for a, b, _ in points for value in (a, b)]
    across, up = scale_of(every, WIDTH), scale_of(every, HEIGHT)
    most = max(every, default=1.0)
    parts = [
        *grid(across, up),
        element(
            "path",
            class_="gt-faint",
            d=f"M0 {HEIGHT:g}L{across.place(most):.1f} {HEIGHT - up.place(most):.1f}",
        ),
    ]
    entries = []
    for number, (name, points) in enumerate(series.items()):
        for a, b, text in points:
            at, high = across.place(a), HEIGHT - up.place(b)
            parts.append(_mark(number, at, high))
            parts.append(words(text, at + 6, high - 3, 8, "soft"))
        entries.append(LegendEntry([_mark(number, 22, 0)], name))
    said = in_words({name: [b for _, b, _ in some] for name, some in series.items()}, y)
    return framed(title, parts, entries, x=x, y=y, desc=said)


def _mark(number: int, x: float, y: float) -> Svg:
    """A circle, square, triangle or diamond, by the series' number."""
    shapes = ("m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "m-4 -4h8v8h-8z", "m0 -5l5 9h-10z",
              "m0 -5l5 5l-5 5l-5 -5z")  # fmt: skip
    return element(
        "path",
        class_=f"gt-dot{number % len(theme.JOBS)}",
        d=f"M{x:.1f} {y:.1f}{shapes[number % len(shapes)]}",
    )
