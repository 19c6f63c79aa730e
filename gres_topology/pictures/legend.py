"""The legend beside a picture: a sample and a text per line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gres_topology.pictures import theme
from gres_topology.pictures.svg import Svg, element, rect, shortened, words

_ROW, _SAMPLE = 22.0, 44.0
_FONT, _MOST_LETTERS = 12, 56


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """One line: a sample of `_SAMPLE` by 16 around (0, 0) to its right, and what it means."""

    sample: Sequence[Svg]
    text: str


def legend(entries: Sequence[LegendEntry]) -> tuple[list[Svg], float, float]:
    """The lines below each other, and their width and height."""
    lines = []
    for number, entry in enumerate(entries):
        y = _ROW * number
        text = shortened(entry.text, _MOST_LETTERS)
        lines.append(element("g", *entry.sample, transform=f"translate(0 {y:g})"))
        lines.append(words(text, _SAMPLE + 8, y + 4, _FONT))
    letters = max((min(len(entry.text), _MOST_LETTERS) for entry in entries), default=0)
    return lines, _SAMPLE + 8 + 0.58 * _FONT * letters, _ROW * len(entries)


def line_entry(kind: str, width: float, text: str) -> LegendEntry:
    """A line of a kind of link (a key of theme.DASHES)."""
    sample = element("path", class_=f"gt-{kind}", d=f"M0 0h{_SAMPLE:g}", stroke_width=width)
    return LegendEntry([sample], text)


def box_entry(look: str, hatch: int, text: str) -> LegendEntry:
    """A box filled as a job's GPUs."""
    return LegendEntry([*filled(look, hatch, 4, -8, 36, 16)], text)


def filled(
    look: str, hatch: int, x: float, y: float, width: float, height: float, stroke: float = 1.2
) -> list[Svg]:
    """A box in a job's colour, with its pattern along the lower edge."""
    box = rect(look, x, y, width, height, rx=6, stroke_width=stroke)
    path = theme.hatch(hatch, round(x + 6), round(y + height - 10), round(width - 12), 6)
    band = element("path", class_=f"gt-{look}-hatch", d=path, stroke_width=1.5)
    return [box, band] if path else [box]
