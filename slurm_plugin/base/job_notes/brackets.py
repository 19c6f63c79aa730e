"""The grammar of AdminComment: where an entry of ours begins and ends.

The engine acts on these entries, so no user may write one. The grammar is the same in Lua
(lua_bridge/gputopo/comment.lua) and C (select/pure/admin_comment.c). A bracket is ours only
outside of all others, with none inside, without control characters, and of at most MAX_BYTES. Of
several of a kind the last one counts; behind one that is never closed nothing is ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

MAX_BYTES = 1536
#: A comment longer than this is somebody else's text: nothing is looked for in it.
MAX_COMMENT_BYTES = 32768
#: Our kinds, in the order in which they are written.
KINDS = ("gpu-topo", "gpu-shape", "gpu-loan", "gpu-slots", "gpu-donor")
TOPO, SHAPE, LOAN, SLOTS, DONOR = KINDS

#: So many comments are remembered as taken apart, but for those that are longer than ours ever are.
REMEMBERED, REMEMBERED_BYTES = 32768, 4096

_EDGE = re.compile(r"[\[\]]")
_BRACKET = re.compile(rf"\[({'|'.join(KINDS)}):([^\x00-\x1f\x7f]*)\]")


@dataclass(frozen=True, slots=True)
class _Parts:
    """A comment taken apart: what stands in our brackets by kind, and the `rest`."""

    ours: Mapping[str, str]
    rest: str
    is_closed: bool


def _parts(comment: str) -> _Parts:
    is_short = len(comment) <= REMEMBERED_BYTES
    return _remembered(comment) if is_short else _taken_apart(comment)


@lru_cache(maxsize=REMEMBERED)
def _remembered(comment: str) -> _Parts:
    return _taken_apart(comment)


def _taken_apart(comment: str) -> _Parts:
    ours: dict[str, str] = {}
    others, taken, depth, opened, is_nested = [], 0, 0, 0, False
    if len(comment) > MAX_COMMENT_BYTES:
        return _Parts(ours, comment, False)
    for edge in _EDGE.finditer(comment):
        if edge[0] == "[":
            is_nested = depth > 0
            opened = opened if is_nested else edge.start()
            depth += 1
        elif depth:
            depth -= 1
            match = None if depth or is_nested else _BRACKET.fullmatch(comment, opened, edge.end())
            if match and len(match[0].encode("utf-8", "surrogatepass")) <= MAX_BYTES:
                ours[match[1]] = match[2].strip(" ")
                others.append(comment[taken:opened].rstrip())
                taken = edge.end()
    others.append(comment[taken:])
    return _Parts(ours, "".join(others).strip(), depth == 0)


def bracket(kind: str, inside: str) -> str:
    """The bracket of `kind` with this text in it."""
    return f"[{kind}: {inside}]" if inside else f"[{kind}:]"


def inside(comment: str, kind: str) -> str | None:
    """What stands in our bracket of `kind`; None without one."""
    return _parts(comment).ours.get(kind) if "[gpu-" in comment else None


def with_inside(comment: str, kind: str, text: str | None) -> str:
    """The comment with `text` in our bracket of `kind`; None takes the bracket away."""
    parts = _parts(comment)
    return _joined({**parts.ours, kind: text}, parts.rest, parts.is_closed)


def split(comment: str) -> tuple[dict[str, str], str]:
    """What stands in our brackets, by kind, and the text of others."""
    parts = _parts(comment)
    return dict(parts.ours), parts.rest


def joined(ours: Mapping[str, str | None], rest: str) -> str:
    """The comment of these entries and the text of others; the contrary of `split`."""
    return _joined(ours, rest, _parts(rest).is_closed)


def _joined(ours: Mapping[str, str | None], rest: str, is_closed: bool) -> str:
    texts = [bracket(kind, text) for kind in KINDS if (text := ours.get(kind)) is not None]
    # Behind a bracket that is never closed ours would not count.
    return " ".join(filter(None, [rest, *texts] if is_closed else [*texts, rest]))
