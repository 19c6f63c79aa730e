"""A small safe XML tree with line numbers, on expat.

No entity is ever expanded and no DTD is loaded: a document that declares an entity is
refused. Depth and size are bounded, so that reading never recurses or grows without end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from gres_topology.errors import TopologyError

MAX_DEPTH = 100
MAX_ELEMENTS = 500_000


@dataclass(eq=False)
class Element:
    """One element: tag, attributes, children, text, the line it starts on, its parent."""

    tag: str
    attributes: dict[str, str]
    line: int
    parent: Element | None = field(default=None, repr=False)
    children: list[Element] = field(default_factory=list, repr=False)
    text: str = ""

    def walk(self) -> Iterator[Element]:
        """This element and all below it, in document order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def ancestors(self) -> Iterator[Element]:
        """Parent, grandparent, ... up to the root."""
        above = self.parent
        while above is not None:
            yield above
            above = above.parent

    def get(self, name: str, default: str = "") -> str:
        """An attribute or the default."""
        return self.attributes.get(name, default)


class _Builder:
    def __init__(self, source: str, first_line: int) -> None:
        self.source = source
        self.first_line = first_line
        self.root: Element | None = None
        self.open: list[Element] = []
        self.count = 0
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.EntityDeclHandler = self.entity

    @property
    def line(self) -> int:
        return self.parser.CurrentLineNumber + self.first_line

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if len(self.open) >= MAX_DEPTH or self.count > MAX_ELEMENTS:
            self.refuse("nested or repeated beyond any machine")
        parent = self.open[-1] if self.open else None
        element = Element(tag, attributes, self.line, parent)
        if parent is None:
            self.root = element
        else:
            parent.children.append(element)
        self.open.append(element)

    def end(self, tag: str) -> None:
        self.open.pop()

    def characters(self, text: str) -> None:
        if self.open:
            self.open[-1].text += text

    def entity(self, *_: object) -> None:
        self.refuse("declares an entity, which no topology needs")

    def refuse(self, why: str) -> NoReturn:
        raise TopologyError(f"{self.source} line {self.line}: XML {why}; refused")


def parse(text: str, source: str) -> Element:
    """The root element of the document; what precedes its first `<` is skipped.

    Raises TopologyError naming the line if it is not whole, well-formed XML.
    """
    start = text.find("<")
    if start < 0:
        raise TopologyError(f"{source}: no XML element in it; expected a topology in XML")
    builder = _Builder(source, text.count("\n", 0, start))
    try:
        builder.parser.Parse(text[start:], True)
    except expat.ExpatError as error:
        line = error.lineno + builder.first_line
        raise TopologyError(
            f"{source} line {line}: {expat.ErrorString(error.code)};"
            " expected whole XML (is the file truncated?)"
        ) from None
    except UnicodeEncodeError:
        raise TopologyError(f"{source}: not valid text; expected XML in UTF-8") from None
    if builder.root is None:
        raise TopologyError(f"{source}: no XML element in it; expected a topology in XML")
    return builder.root
