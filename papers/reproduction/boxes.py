"""Boxes: how values are spread, as the papers' figures show it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gres_topology.pictures import Picture
from gres_topology.pictures.charts import group_names, look, numbers
from gres_topology.pictures.legend import box_entry
from gres_topology.pictures.scale import HEIGHT, WIDTH, framed, grid, in_words, scale_of
from gres_topology.pictures.svg import Svg, element, rect


def boxes(
    title: str,
    groups: Sequence[str],
    series: Mapping[str, Sequence[Sequence[float | None]]],
    *,
    x: str = "",
    y: str = "",
    is_log: bool = False,
) -> Picture:
    """A box per series in each group, of five values: least, quartiles with median, greatest."""
    known = {name: [numbers(five) for five in fives] for name, fives in series.items()}
    every = [value for fives in known.values() for five in fives for value in five]
    scale = scale_of(every, HEIGHT, is_log=is_log)
    parts, room = grid(None, scale), WIDTH / max(1, len(groups))
    width = 0.84 * room / max(1, len(known))
    for number, fives in enumerate(known.values()):
        for group, five in enumerate(fives):
            if all(map(math.isfinite, five)):
                left = group * room + 0.08 * room + number * width
                places = [HEIGHT - scale.place(value) for value in five]
                parts += _box(number, left + width * 0.1, width * 0.8, places)
    parts += group_names(groups)
    entries = [box_entry(*look(number), name) for number, name in enumerate(known)]
    said = in_words({name: [v for five in fives for v in five] for name, fives in known.items()}, y)
    return framed(title, parts, entries, x=x, y=y, desc=said)


def _box(number: int, left: float, width: float, places: Sequence[float]) -> list[Svg]:
    least, low, middle, high, most = places
    at = left + width / 2
    ends = f"M{at:.1f} {least:.1f}V{low:.1f}M{at:.1f} {high:.1f}V{most:.1f}"
    name, _ = look(number)
    return [
        element("path", class_="gt-edge", d=ends),
        rect(name, left, high, width, max(1.0, low - high)),
        element("path", class_="gt-edge", d=f"M{left:.1f} {middle:.1f}h{width:.1f}",
                stroke_width=2.5),
    ]  # fmt: skip
