"""Slurm's host list notation: `dgx[1-2,05],login` -> the names, in the order written.

Users write host lists, too, so the names are counted before the first of them is made.
python-hostlist and ClusterShell make all of them first, and are longer than these two pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, product
from math import prod

#: More names than any cluster has; keeps a typing error from eating the memory.
MAX_HOSTS = 65_536
#: The longest name; no host has a longer one.
MAX_NAME = 255

_SEPARATORS = ", \t\n"
_PIECE = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z")
_PLAIN = re.compile(r"[A-Za-z0-9_.\-]*\Z")


def expand(text: str, most: int = MAX_HOSTS) -> tuple[str, ...]:
    """Names of a host list, each once; `most` counts those written twice twice.

    Raises ValueError that quotes the part it could not read.
    """
    names_as_pieces: list[list[_Piece]] = []
    left = most
    for word in _words(text):
        pieces = _pieces(word)
        left -= prod(piece.count for piece in pieces)
        if left < 0:
            raise ValueError(f"{_shown(word)} makes it more than {most} hosts")
        names_as_pieces.append(pieces)
    names = (map("".join, product(*pieces)) for pieces in names_as_pieces)
    return tuple(dict.fromkeys(chain.from_iterable(names)))


class _Piece:
    """What stands at one place of a name: one text, or the numbers of some ranges."""

    def __init__(self, text: str, ranges: list[tuple[int, int, int]]) -> None:
        self._text, self._ranges = text, ranges
        self.count = sum(high - low + 1 for low, high, _ in ranges) if ranges else 1
        self.width = max((max(width, len(str(high))) for _, high, width in ranges), default=0)
        self.width += len(text)

    def __iter__(self) -> Iterator[str]:
        if not self._ranges:
            yield self._text
        for low, high, width in self._ranges:
            for number in range(low, high + 1):
                yield str(number).zfill(width)


def _words(text: str) -> list[str]:
    """Commas and blanks outside brackets split the list; Slurm passes over more of them than one.

    (`_next_tok` in its hostlist.c.) A text of nothing else is one word, which is none.
    """
    words, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char in _SEPARATORS and depth == 0:
            words.append(text[start:i])
            start = i + 1
    words.append(text[start:])
    return [word for word in words if word] or [text]


def _pieces(word: str) -> list[_Piece]:
    parts = _PIECE.split(word)
    bad = next((part for part in parts[::2] if not _PLAIN.match(part)), None)
    if not word or bad is not None:
        raise ValueError(f"{_shown(word)} is no host list; expected forms like dgx[1-2,5],login")
    pieces = [_Piece("", _ranges(p, word)) if i % 2 else _Piece(p, []) for i, p in enumerate(parts)]
    if sum(piece.width for piece in pieces) > MAX_NAME:
        raise ValueError(f"{_shown(word)} makes names longer than {MAX_NAME} characters")
    return pieces


def _ranges(text: str, word: str) -> list[tuple[int, int, int]]:
    """(1, 4, 1) for `1-4`: the first, the last, and digits at least."""
    ranges = []
    for part in text.split(","):
        match = _RANGE.match(part.strip())
        if match is None:
            raise ValueError(
                f"[{_shown(text)}] in {_shown(word)} is no range; expected forms like [1-4,7]"
            )
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low) or int(high) - int(low) >= MAX_HOSTS:
            raise ValueError(f"{part!r} in {_shown(word)} is no range of at most {MAX_HOSTS} hosts")
        ranges.append((int(low), int(high), len(low)))
    return ranges


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
