"""Slurm's host list notation: `dgx[1-2,05],login` -> the names, in the order written."""

from __future__ import annotations

import re
from itertools import product
from math import prod

#: More names than any cluster has; keeps a typing error from eating the memory.
MAX_HOSTS = 65_536

_PIECE = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z")
_NAME = re.compile(r"[A-Za-z0-9_.\-]+\Z")


def expand(text: str) -> tuple[str, ...]:
    """Names of a host list, each once.

    Raises ValueError that quotes the part it could not read.
    """
    names: dict[str, None] = {}
    for word in _words(text):
        pieces = _PIECE.split(word)
        choices = [_numbers(p, word) if i % 2 else [p] for i, p in enumerate(pieces)]
        if len(names) + prod(len(choice) for choice in choices) > MAX_HOSTS:
            raise ValueError(f"{word!r} names more than {MAX_HOSTS} hosts")
        for parts in product(*choices):
            name = "".join(parts)
            if not _NAME.match(name):
                raise ValueError(f"{word!r} is no host list; expected forms like dgx[1-2,5],login")
            names[name] = None
    return tuple(names)


def _words(text: str) -> list[str]:
    """The commas outside brackets split the list."""
    words, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            words.append(text[start:i].strip())
            start = i + 1
    words.append(text[start:].strip())
    return words


def _numbers(text: str, word: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.match(part.strip())
        if match is None:
            raise ValueError(f"[{text}] in {word!r} is no range; expected forms like [1-4,7]")
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low) or int(high) - int(low) >= MAX_HOSTS:
            raise ValueError(f"{part!r} in {word!r} is no range of at most {MAX_HOSTS} hosts")
        numbers += [str(n).zfill(len(low)) for n in range(int(low), int(high) + 1)]
    return numbers
