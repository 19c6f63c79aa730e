"""Slurm's GRES text: `gpu:v100:8(S:0-1)`, `gpu:v100:2(IDX:0,3)`, `gpu:(null):4(IDX:0-3)`.

TRES are the same with `=` before their count: `gres/gpu:v100=8,cpu=4`.
"""

from __future__ import annotations

import re

_ITEM = re.compile(
    r"(?:gres[:/])?(?P<name>[A-Za-z_][\w.\-]*)"
    r"(?::(?P<type>\(null\)|[A-Za-z_][\w.\-]*|\d[\w.\-]*(?=:)))?"
    r"(?:[:=](?P<count>\d+)[KMG]?)?"
    r"(?P<marks>(?:\([^()]*\))*)\Z"
)
_INDEX = re.compile(r"\(IDX:([0-9,\-]+)\)")


def counts(text: str, name: str = "gpu") -> dict[str, int]:
    """How many of GRES `name` by type; '' where Slurm gives none.

    Raises ValueError that quotes the item it could not read.
    """
    by_type: dict[str, int] = {}
    for item in _items(text):
        match = _ITEM.match(item)
        if match is None:
            raise ValueError(f"{item!r} is no GRES; expected NAME[:TYPE]:COUNT")
        if match["name"] == name:
            kind = match["type"] or ""
            kind = "" if kind == "(null)" else kind
            by_type[kind] = by_type.get(kind, 0) + int(match["count"] or 1)
    return by_type


def indices(text: str, name: str = "gpu") -> tuple[int, ...]:
    """The indices of GRES `name` named by IDX marks, ascending; empty for `IDX:N/A`."""
    numbers: set[int] = set()
    for item in _items(text):
        match = _INDEX.search(item)
        if item.removeprefix("gres:").removeprefix("gres/").startswith(f"{name}:") and match:
            numbers.update(index_list(match[1]))
    return tuple(sorted(numbers))


def index_list(text: str) -> list[int]:
    """`0-2,5` as [0, 1, 2, 5]; raises ValueError for anything else."""
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"{part.strip()!r} is no index or range; expected forms like 0-2,5")
        numbers.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    return numbers


def _items(text: str) -> list[str]:
    """The commas outside parentheses split the text."""
    if text.strip() in ("", "(null)", "N/A"):
        return []
    return [item.strip() for item in re.split(r",(?![^()]*\))", text) if item.strip()]
