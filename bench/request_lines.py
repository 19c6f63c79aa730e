"""Requests as the lines that the select plugin and the bridge send: for benchmarks and tests.

The product sends such lines in C and Lua, and reads them (`slurm_plugin.base.protocol.decode`).
"""

from __future__ import annotations

from collections.abc import Iterable

from slurm_plugin.base.node_lines import NodesPart, TableChanges
from slurm_plugin.base.placement import CandidateNode
from slurm_plugin.base.protocol import PLAIN_FIELDS, Notice, Place, SlotsKeys, Submit
from slurm_plugin.base.wire import encode


def encode_request(message: Submit | Place | NodesPart | Notice) -> bytes:
    """A request's line: what the bridge and the plugin send."""
    if isinstance(message, Notice):
        pairs = [("job", str(message.job)), ("array", str(message.array))]
        pairs += [("shared", "1")] if message.shared else []
        pairs += [("node", f"{name}/{mask:x}") for name, mask in message.gpus.items()]
        return encode(message.kind, pairs)
    if isinstance(message, NodesPart):
        return encode("nodes", _part_pairs(message))
    pairs = _plain_pairs(message)
    if isinstance(message, Submit):
        slots = [("slots", "1"), *_plain_pairs(message.slots)] if message.slots else []
        return encode("submit", pairs + slots)
    pairs += [("node", _candidate_text(node)) for node in message.candidates]
    return encode("place", pairs + (_change_pairs(message.changes) if message.changes else []))


def _plain_pairs(message: Submit | Place | SlotsKeys) -> list[tuple[str, str]]:
    """The numbers, flags and texts as they travel; a text that is unset does not."""
    values = ((one.name, getattr(message, one.name)) for one in PLAIN_FIELDS[type(message)])
    return [(k, v if isinstance(v, str) else str(int(v))) for k, v in values if v != ""]


def _candidate_text(node: CandidateNode) -> str:
    """A node as a `node=` value of the wire, which the engine reads again."""
    text = f"{node.name}/{node.total}/{node.free:x}/{node.own:x}/{node.weight}"
    if node.left:
        text += f"/{node.idle:x}/{','.join(map(str, node.left))}"
    return text


def _part_pairs(part: NodesPart) -> list[tuple[str, str]]:
    """A `nodes` line's keys and values."""
    return [
        *((key, str(int(getattr(part, key)))) for key in ("id", "part", "parts", "first", "hears")),
        ("table", f"{part.table:x}"),
        ("names", ",".join(part.names)),
        ("total", _joined(map(str, part.total))),
        ("free", _joined(f"{mask:x}" for mask in part.free)),
        ("weight", _joined(map(str, part.weight))),
        ("type", _joined(part.type)),
    ]


def _change_pairs(changed: TableChanges) -> list[tuple[str, str]]:
    """What a question says of its table."""
    pairs = [("table", f"{changed.table:x}"), ("state", f"{changed.state:x}")]
    if changed.free:
        listed = ",".join(f"{at}:{mask:x}" for at, mask in changed.free.items())
        pairs.append(("changed", listed))
    if changed.heaviest is not None:
        pairs.append(("heaviest", str(changed.heaviest)))
    return [*pairs, ("others", changed.others)]


def _joined(texts: Iterable[str]) -> str:
    """A column; one value where all are equal."""
    column = list(texts)
    return column[0] if len(set(column)) == 1 else ",".join(column)
