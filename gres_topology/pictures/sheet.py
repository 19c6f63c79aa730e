"""Several pictures on one sheet, each with its caption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gres_topology.pictures.svg import Picture, Svg, element, shortened, words

_WIDTH, _MARGIN, _GAP = 1040.0, 16.0, 18.0
_LINE = 16.0
_LETTERS = 150


@dataclass(frozen=True, slots=True)
class Pane:
    """A picture on a sheet, scaled to `width`; the first line of its caption is bold."""

    picture: Picture
    width: float
    caption: Sequence[str] = ()


def sheet(title: str, lines: Sequence[str], panes: Sequence[Pane]) -> Picture:
    """A heading, lines of text, and the panes in rows as they fit beside each other."""
    parts = [words(shortened(title, 100), _MARGIN, 32, 19)]
    y = 40.0
    for line in lines:
        y += _LINE
        parts.append(words(shortened(line, _LETTERS), _MARGIN, y, 12, "soft"))
    y += _GAP
    x, low = _MARGIN, y
    for pane in panes:
        if x > _MARGIN and x + pane.width > _WIDTH - _MARGIN:
            x, y = _MARGIN, low + _GAP
        drawn, height = _drawn(pane, x, y)
        parts += drawn
        low = max(low, y + height)
        x += pane.width + _GAP
    said = ". ".join([*lines, *(" ".join([*p.caption, p.picture.desc]) for p in panes)])
    return Picture(parts, _WIDTH, round(low + _MARGIN), title, said)


def _drawn(pane: Pane, x: float, y: float) -> tuple[list[Svg], float]:
    """A pane at its place, and its height."""
    scale = pane.width / pane.picture.width
    head = _LINE * len(pane.caption)
    at = f"translate({x:.1f} {y + head:.1f}) scale({scale:.3f})"
    letters = round(pane.width / 6.5)
    texts = [
        words(
            shortened(line, letters),
            x + 4,
            y + 12 + _LINE * row,
            12,
            weight=None if row else "bold",
        )
        for row, line in enumerate(pane.caption)
    ]
    return [*texts, element("g", *pane.picture.parts, transform=at)], (
        head + pane.picture.height * scale
    )
