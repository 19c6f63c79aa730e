"""Charts of named rows: bars to both sides of zero, shares over time, who held what when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gres_topology.pictures import theme
from gres_topology.pictures.legend import LegendEntry, filled
from gres_topology.pictures.scale import WIDTH, framed, grid, scale_of
from gres_topology.pictures.svg import Picture, Svg, element, rect, shortened, words

_ROW, _LEFT = 18.0, 130.0
#: Shares are shown in this many shades, the first of which is none.
SHADES = 5


def _named(rows: Sequence[str]) -> list[Svg]:
    return [
        words(shortened(name, 20), -8.0, _ROW * at + 13, 11, anchor="end")
        for at, name in enumerate(rows)
    ]


def sideways(
    title: str,
    rows: Mapping[str, float],
    *,
    x: str = "",
    said: Callable[[float], str] = "{:+g}".format,
) -> Picture:
    """A bar per row, to the right where its value is above 0 and to the left where below."""
    scale = scale_of(rows.values(), WIDTH - 120)
    zero, height = 60 + scale.place(0.0), _ROW * len(rows)
    parts = _named(list(rows))
    for at, value in enumerate(rows.values()):
        end = 60 + scale.place(value)
        name = "job0" if value >= 0 else "job5"
        left = min(zero, end)
        parts += filled(name, 0, left, _ROW * at + 2, abs(end - zero), _ROW - 4, 0.8)
        parts.append(
            element(
                "text",
                said(value),
                class_="gt-text",
                y=_ROW * at + 13,
                font_size=11,
                x=end + (5 if value >= 0 else -5),
                text_anchor="start" if value >= 0 else "end",
            )
        )
    parts.append(element("path", class_="gt-edge", d=f"M{zero:.1f} 0v{height:g}"))
    desc = "; ".join(f"{name}: {said(value)}" for name, value in rows.items())
    return framed(title, parts, [], x=x, desc=desc, height=height, left=_LEFT)


def strips(
    title: str, rows: Mapping[str, Sequence[float]], *, end: float, x: str = "", what: str = ""
) -> Picture:
    """A strip per row, from 0 to `end`: the darker, the greater the share (0 to 1) at that time."""
    height, parts = _ROW * len(rows), []
    for at, shares in enumerate(rows.values()):
        cell = WIDTH / max(1, len(shares))
        shades = [_shade(share) for share in shares]
        first = 0
        for now in range(1, len(shades) + 1):
            if now == len(shades) or shades[now] != shades[first]:
                if shade := shades[first]:
                    left, width = first * cell, (now - first) * cell
                    parts.append(rect(f"shade{shade}", left, _ROW * at + 1, width, _ROW - 2))
                first = now
    across = scale_of([0.0, end], WIDTH)
    entries = [_shade_entry(shade, what) for shade in range(SHADES + 1)]
    means = {name: sum(shares) / max(1, len(shares)) for name, shares in rows.items()}
    desc = "; ".join(f"{name}: {100 * mean:.0f} % {what}" for name, mean in means.items())
    return framed(
        title,
        [*_named(list(rows)), *parts, *grid(across, None, height)],
        entries,
        x=x,
        desc=desc,
        height=height,
        left=_LEFT,
    )


def _shade(share: float) -> int:
    """0 for none, then fifths."""
    return 0 if share <= 1e-9 else min(SHADES, 1 + int(share * SHADES - 1e-9))


def _shade_entry(shade: int, what: str) -> LegendEntry:
    sample = rect(f"shade{shade}" if shade else "free", 4, -8, 36, 16)
    step = 100 // SHADES
    share = f"{step * (shade - 1)} to {step * shade} %" if shade else "none"
    return LegendEntry([sample], f"{share} {what}")


def timeline(
    title: str,
    rows: Sequence[str],
    held: Sequence[tuple[int, float, float, int, str]],
    *,
    x: str = "",
) -> Picture:
    """Who held which row when: (row, start, end, number of the holder, its name) per bar."""
    height = _ROW * len(rows)
    across = scale_of([0.0, *(end for _, _, end, _, _ in held)], WIDTH)
    parts = [*_named(rows), *grid(across, None, height)]
    for row, start, end, number, name in held:
        left, width = across.place(start), across.place(end) - across.place(start)
        colour = f"job{number % len(theme.JOBS)}"
        hatch = number if width > 30 and not name else 0
        parts += filled(colour, hatch, left, _ROW * row + 1, max(0.5, width), _ROW - 2, 0.5)
        letters = int(width / 6)
        if name and letters > 1:
            parts.append(
                words(shortened(name, letters), left + 3, _ROW * row + 13, 10, f"{colour}-text")
            )
    desc = f"{len(held)} stretches of time on {len(rows)} rows"
    return framed(title, parts, [], x=x, desc=desc, height=height, left=_LEFT)
