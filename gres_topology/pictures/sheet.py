"""Several pictures on one sheet, each with its caption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gres_topology.pictures.svg import Picture, Svg, element, shortened

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
    parts = [
        element("text", shortened(title, 100), class_="gt-text", x=_MARGIN, y=32, font_size=19)
    ]
    y = 40.0
    for line in lines:
        y += _LINE
        parts.append(
            element(
                "text", shortened(line, _LETTERS), class_="gt-soft", x=_MARGIN, y=y, font_size=12
            )
        )
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
    texts = [
        element(
            "text",
            shortened(line, round(pane.width / 6.5)),
            class_="gt-text",
            x=x + 4,
            y=y + 12 + _LINE * row,
            font_size=12,
            font_weight=None if row else "bold",
        )
        for row, line in enumerate(pane.caption)
    ]
    return [*texts, element("g", *pane.picture.parts, transform=at)], (
        head + pane.picture.height * scale
    )
