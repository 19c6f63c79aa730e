"""What the select plugin says of its nodes: all of them once, then what changed (docs/protocol.md).

A set of nodes is an int with bit i for node i of the table, in Slurm's order.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from slurm_plugin.base.placement import CandidateNode, PlacementQuestion
from slurm_plugin.base.wire import unquote
from slurm_plugin.errors import ProtocolError

#: Parts of one table, nodes of one part, changes in one question.
MOST_PARTS, MOST_NODES, MOST_CHANGES = 64, 4096, 512
MAX_NODE_GPUS = 256

#: Characters of a node's words that are remembered.
_SHORT = 200

#: A place of the table that no node has is named `.INDEX`.
_NAME = r"[A-Za-z0-9_.][A-Za-z0-9_.\-]{0,254}"
_NAMES = re.compile(rf"{_NAME}(,{_NAME})*\Z")
_NODE = r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,254}"
_HEX64 = re.compile(r"[0-9a-f]{1,16}\Z")
_CHANGE = re.compile(rf"(\d{{1,7}}):([0-9a-fA-F]{{1,{MAX_NODE_GPUS // 4}}})\Z")
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?\Z")
_ALL_BITS = (1 << 64) - 1

Value = TypeVar("Value", int, str)

#: Slurm's GRES that are shares of GPUs.
SHARED = ("shard", "mps")
_MASK = f"[0-9a-fA-F]{{1,{MAX_NODE_GPUS // 4}}}"
#: At its end what a question about shares says of the node: idle GPUs, and what is left of each.
_CANDIDATE = re.compile(
    rf"({_NODE})/(\d{{1,3}})/({_MASK})/({_MASK})/(\d{{1,10}})"
    rf"(?:/({_MASK})/(\d{{1,18}}(?:,\d{{1,18}}){{0,{MAX_NODE_GPUS - 1}}}))?\Z"
)


@dataclass(frozen=True, slots=True)
class NodesPart:
    """Some of a table's nodes; each list has one entry for each of them."""

    id: int
    #: The table's number; parts of it are numbered from 1.
    table: int
    part: int
    parts: int
    #: Where the first of these nodes stands in the table.
    first: int
    names: list[str]
    #: GPUs of each node, those that are free (masks), Slurm's Weight, and type ("" for none).
    total: list[int]
    free: list[int]
    weight: list[int]
    type: list[str]
    #: May the engine ask for a scheduling pass on this connection?
    hears: bool = False


@dataclass(frozen=True, slots=True)
class TableChanges:
    """What changed in a table since the last answered question, and which nodes a job may use."""

    table: int
    #: `digest` of the table with the changes.
    state: int
    #: Free GPUs (masks) by node.
    free: Mapping[int, int]
    #: The set of nodes as it travels; `places` reads it.
    others: str
    #: The highest Weight that a node may have; None for any.
    heaviest: int | None


def nodes_part(values: Mapping[str, str], number: Callable[[str, int | None], int]) -> NodesPart:
    """A `nodes` line; raises ProtocolError for anything that does not fit together."""
    names = values.get("names", "")
    if not _NAMES.match(names):
        raise ProtocolError("nodes: names= is no list of node names")
    listed = names.split(",")
    if len(listed) > MOST_NODES:
        raise ProtocolError(f"nodes: {len(listed)} names; expected at most {MOST_NODES}")
    part = NodesPart(
        number("id", None),
        _hex64(values, "table"),
        number("part", None),
        number("parts", None),
        number("first", None),
        listed,
        _column(values, "total", len(listed), _decimal),
        _column(values, "free", len(listed), _mask),
        _column(values, "weight", len(listed), _decimal),
        _column(values, "type", len(listed), unquote),
        number("hears", 0) != 0,
    )
    if not 1 <= part.part <= part.parts <= MOST_PARTS or not part.table:
        raise ProtocolError(f"nodes: part {part.part} of {part.parts} of table {part.table:x}")
    for name, total, free in zip(part.names, part.total, part.free, strict=True):
        if total > MAX_NODE_GPUS or free >> total:
            raise ProtocolError(f"nodes: {name}: free={free:x} does not lie within {total} GPUs")
    return part


def changes(
    values: Mapping[str, str], number: Callable[[str, int | None], int]
) -> TableChanges | None:
    """What a question says of a table; None where it speaks of the listed nodes alone."""
    if "table" not in values:
        return None
    texts = values["changed"].split(",") if values.get("changed") else []
    if len(texts) > MOST_CHANGES:
        raise ProtocolError(f"place: {len(texts)} changes; expected at most {MOST_CHANGES}")
    free = {}
    for text in texts:
        match = _CHANGE.match(text)
        if match is None:
            raise ProtocolError(f"place: changed={text[:40]!r} is not INDEX:FREE")
        free[int(match[1])] = int(match[2], 16)
    heaviest = number("heaviest", None) if "heaviest" in values else None
    table, state = _hex64(values, "table"), _hex64(values, "state")
    return TableChanges(table, state, free, values.get("others", ""), heaviest)


def candidates(texts: list[str]) -> tuple[CandidateNode, ...]:
    """The `node=` values of a question; raises ProtocolError for anything else."""
    nodes = tuple(_as_before(text) if len(text) <= _SHORT else _candidate(text) for text in texts)
    if len({node.name for node in nodes}) != len(nodes):
        raise ProtocolError("place: a node is given twice")
    return nodes


def _candidate(text: str) -> CandidateNode:
    """The node that one `node=` value describes; ProtocolError where it does not read so."""
    match = _CANDIDATE.match(text)
    if match is None:
        raise ProtocolError(f"node={text[:60]!r} is not NAME/TOTAL/FREE/OWN/WEIGHT")
    name, total, free, own, weight, idle, left = match.groups()
    counts = tuple(map(int, left.split(","))) if left else ()
    told = (int(total), int(free, 16), int(own, 16), int(weight), int(idle or "0", 16))
    node = CandidateNode(name, *told, counts)
    if node.total > MAX_NODE_GPUS or node.free >> node.total or node.own & ~node.free:
        raise ProtocolError(
            f"node={text[:60]!r}: FREE must lie within TOTAL GPUs and OWN within FREE"
        )
    return node


#: Of the many nodes that a question about shares lists most are as they were in the one before.
_as_before = lru_cache(4096)(_candidate)


def check_shares(place: PlacementQuestion) -> None:
    """Raises ProtocolError unless every node of a question about shares, and no other, has some."""
    if not place.shared:
        if any(node.left for node in place.candidates):
            raise ProtocolError("place: a node tells of shares; expected shared= with it")
        return
    if place.shared not in SHARED or not place.shares:
        listed = " or ".join(SHARED)
        raise ProtocolError(f"place: shared={place.shared!r}; expected {listed}, and shares=")
    for node in place.candidates:
        told, fit = len(node.left), _fit(node.left, place.shares)
        if told != node.total or node.free & ~fit or node.idle >> told or node.own & node.own - 1:
            raise ProtocolError(
                f"place: {node.name}: shares of {told} GPUs; expected those of all {node.total},"
                " enough of each in FREE, and one GPU in OWN"
            )


@lru_cache(4096)
def _fit(counts: tuple[int, ...], shares: int) -> int:
    """The GPUs (mask) that have so many shares left."""
    return sum(1 << gpu for gpu, left in enumerate(counts) if left >= shares)


def places(others: str, size: int) -> int:
    """A set of nodes of a table of `size`; raises ProtocolError for one that is none."""
    if others.startswith("*"):
        try:
            chosen = int.from_bytes(base64.b64decode(others[1:], validate=True), "little")
        except (binascii.Error, ValueError) as error:
            raise ProtocolError(f"place: others= is no base64: {error}") from error
        if chosen >> size:
            raise ProtocolError(f"place: others= names nodes behind the last of {size}")
        return chosen
    chosen = 0
    for text in others.split(",") if others else ():
        match = _RANGE.match(text)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not low <= high < size:
            raise ProtocolError(f"place: others={text[:40]!r}; expected nodes from 0 to {size - 1}")
        chosen |= ((1 << (high - low + 1)) - 1) << low
    return chosen


def mix(index: int, free: int) -> int:
    """What one node adds to a digest: 64 bits of its place and its free GPUs."""
    return _finalized(_finalized(index + 1) ^ (free & _ALL_BITS))


def digest(free: list[int]) -> int:
    """64 bits that two tables with the same free GPUs share, and hardly ever two others do."""
    index = np.arange(1, len(free) + 1, dtype=np.uint64)
    masks = np.array([mask & _ALL_BITS for mask in free], dtype=np.uint64)
    return int(np.bitwise_xor.reduce(_all_finalized(_all_finalized(index) ^ masks), initial=0))


def _finalized(x: int) -> int:
    """The finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _ALL_BITS
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _ALL_BITS
    return x ^ x >> 31


def _all_finalized(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def _hex64(values: Mapping[str, str], key: str) -> int:
    text = values.get(key, "")
    if not _HEX64.match(text):
        raise ProtocolError(f"{key}={text[:40]!r}; expected up to 16 hexadecimal digits")
    return int(text, 16)


def _column(
    values: Mapping[str, str], key: str, size: int, read: Callable[[str], Value]
) -> list[Value]:
    """One value for each of `size` nodes; a single one stands for all."""
    texts = values.get(key, "").split(",")
    try:
        column = [read(text) for text in texts]
    except ValueError as error:
        raise ProtocolError(f"nodes: {key}= is no list of values: {error}") from error
    if len(column) == 1:
        column *= size
    if len(column) != size:
        raise ProtocolError(f"nodes: {key}= has {len(column)} values for {size} nodes")
    return column


def _decimal(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 10:
        raise ValueError(f"{text[:40]!r} is no number")
    return int(text)


def _mask(text: str) -> int:
    if len(text) > MAX_NODE_GPUS // 4 or not text.isalnum():
        raise ValueError(f"{text[:40]!r} is no mask")
    return int(text, 16)
