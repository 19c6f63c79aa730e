"""SVG as text: elements whose texts and attributes are always escaped, and files of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from gres_topology.errors import TopologyError
from gres_topology.pictures import theme

#: Characters that XML 1.0 forbids; names come from users and may hold them.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CLASS = re.compile(r'class="gt-([\w-]+)"')


class Svg(str):
    """Text that is SVG already. `element` escapes every other text that it is given."""

    __slots__ = ()


def element(name: str, *inside: str, **attributes: object) -> Svg:
    """An element with these texts and elements inside.

    Attributes are given with underscores (`class_`, `stroke_width`); one that is None is left
    out, and a float has one digit behind the point.
    """
    head = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    body = "".join(part if isinstance(part, Svg) else escape(_legal(part)) for part in inside)
    return Svg(f"<{name}{head}>{body}</{name}>" if inside else f"<{name}{head}/>")


def words(
    text: str,
    x: float,
    y: float,
    size: float,
    look: str = "text",
    anchor: str | None = None,
    weight: str | None = None,
) -> Svg:
    """A line of text in a colour of `theme`, whose `anchor` (by default its start) is at (x, y)."""
    return element(
        "text",
        text,
        class_=f"gt-{look}",
        x=x,
        y=y,
        font_size=size,
        font_weight=weight,
        text_anchor=anchor,
    )


def rect(look: str, x: float, y: float, width: float, height: float, **more: object) -> Svg:
    """A rectangle in a colour of `theme`; `more` are further attributes."""
    return element("rect", class_=f"gt-{look}", x=x, y=y, width=width, height=height, **more)


def segment(one: tuple[float, float], other: tuple[float, float]) -> str:
    """The path's data of a line from one point to another."""
    return "M{:.1f} {:.1f}L{:.1f} {:.1f}".format(*one, *other)


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return _legal(str(value))


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)


def shortened(text: str, most: int) -> str:
    """The text, cut to `most` characters with an ellipsis for the rest."""
    return text if len(text) <= most else text[: most - 1] + "…"


@dataclass(frozen=True, slots=True)
class Picture:
    """Elements in an area of `width` by `height`, and their name and description in words."""

    parts: Sequence[Svg]
    width: float
    height: float
    title: str
    desc: str

    def svg(self, *, is_inline: bool = False) -> str:
        """The text of one <svg>, with name and description for screen readers.

        An inline one has no <style>, which a strict Content-Security-Policy forbids: its page's
        own stylesheet has `theme.css()` in it.
        """
        return self._text("" if is_inline else theme.css(self._classes()))

    def plain_svg(self) -> str:
        """The same in light colours, for programs that know no variables of CSS."""
        return self._text(theme.css(self._classes(), is_plain=True))

    def _classes(self) -> set[str]:
        classes = _CLASS.findall("".join(self.parts))
        return {"picture", "paper", *classes}

    def _text(self, style: str) -> str:
        return element(
            "svg",
            element("title", self.title),
            element("desc", self.desc),
            *([element("style", Svg(style))] if style else []),
            element("rect", class_="gt-paper", width=self.width, height=self.height),
            *self.parts,
            xmlns="http://www.w3.org/2000/svg",
            class_="gt-picture",
            viewBox=f"0 0 {_plain(self.width)} {_plain(self.height)}",
            width=self.width,
            height=self.height,
            role="img",
            aria_label=self.title,
        )


def write(picture: Picture, target: Path) -> None:
    """Write a picture to `target`: .svg as it is, .png by cairosvg.

    TopologyError for another ending, without cairosvg (the extra `plot`), or where the file
    cannot be written.
    """
    expected = "expected a file to write, .svg or .png"
    try:
        if target.suffix == ".svg":
            target.write_text(picture.svg() + "\n", encoding="utf-8")
        elif target.suffix == ".png":
            target.write_bytes(_png(picture.plain_svg()))
        else:
            raise TopologyError(f"{target}: {expected}")
    except OSError as error:
        raise TopologyError(f"{target}: {error.strerror}; {expected}") from None


def _png(picture_svg: str) -> bytes:
    """Twice the SVG's size in pixels."""
    try:
        import cairosvg
    except (ImportError, OSError):
        raise TopologyError(
            "a PNG needs CairoSVG: apt-get install python3-cairosvg, or pip install"
            " 'slurm-gputopo[plot]' and libcairo2; an SVG needs none"
        ) from None
    png: bytes = cairosvg.svg2png(bytestring=picture_svg.encode(), scale=2)
    return png
