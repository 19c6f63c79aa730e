"""Slurm's GRES text: `gpu:v100:8(S:0-1)`, `gpu:v100:2(IDX:0,3)`, `gpu:(null):4(IDX:0-3)`.

TRES are the same with `=` before their count: `gres/gpu:v100=8,cpu=4`.
"""

from __future__ import annotations

import re

from gres_topology.cpulist import parse_list

_ITEM = re.compile(
    r"(?:gres[:/])?(?P<name>[A-Za-z_][\w.\-]*)"
    r"(?::(?P<type>\(null\)|[A-Za-z_][\w.\-]*|\d[\w.\-]*(?=:)))?"
    r"(?:[:=](?P<count>\d+)[KMG]?)?"
    r"(?P<marks>(?:\([^()]*\))*)\Z"
)
_INDEX = re.compile(r"\(IDX:([0-9,\-]+)\)")
#: What a job has of each GPU, and how many there are.
_SHARES = re.compile(r"(?:gres[:/])?(?:shard|mps):[^()]*\((\d+/\d+(?:,\d+/\d+)*)\)\Z")


def counts(text: str) -> dict[str, int]:
    """How many GPUs by type ('' for none); ValueError quotes what cannot be read."""
    by_type: dict[str, int] = {}
    for item in _items(text):
        match = _ITEM.match(item)
        if match is None:
            raise ValueError(f"{item!r} is no GRES; expected NAME[:TYPE]:COUNT")
        if match["name"] == "gpu":
            kind = match["type"] or ""
            kind = "" if kind == "(null)" else kind
            by_type[kind] = by_type.get(kind, 0) + int(match["count"] or 1)
    return by_type


def indices(text: str) -> tuple[int, ...]:
    """The indices of GPUs named by IDX marks, ascending; empty for `IDX:N/A`."""
    numbers: set[int] = set()
    for item in _items(text):
        match = _INDEX.search(item)
        if item.removeprefix("gres:").removeprefix("gres/").startswith("gpu:") and match:
            numbers.update(parse_list(match[1]))
    return tuple(sorted(numbers))


def shared(text: str) -> tuple[int, ...]:
    """The indices of GPUs that a job has shares of: `shard:a100:3(0/4,3/4)` is of GPU 1."""
    numbers: set[int] = set()
    for item in _items(text):
        if match := _SHARES.match(item):
            used = enumerate(part.split("/")[0] for part in match[1].split(","))
            numbers.update(gpu for gpu, count in used if int(count))
    return tuple(sorted(numbers))


def _items(text: str) -> list[str]:
    """The commas outside parentheses split the text."""
    if text.strip() in ("", "(null)", "N/A"):
        return []
    return [item.strip() for item in re.split(r",(?![^()]*\))", text) if item.strip()]
