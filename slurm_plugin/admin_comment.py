"""Everything of ours in a job's AdminComment: read and written here alone.

`[gpu-topo: HINT | NOTE]` is the hint and a note for people, `[gpu-shape: 2x4 ...]` a chosen shape,
`[gpu-loan: meets loan=... ...]` a loan where GPUs are chosen when a job starts, `[gpu-slots: gated
key=value ...]` the state of a job in the slots mode, `[gpu-donor: of=4711]` says whom a donor
lends to. Slurm alone keeps them, so that an engine that starts knows what it was doing.

What is acted on stands here, so no user may write it: one grammar for Python, Lua
(lua_bridge/gputopo/comment.lua) and C (select/pure/admin_comment.c). A bracket is ours only
outside of every other bracket, with none inside, without control characters, and of at most
MAX_BYTES. Of several of a kind the last one counts. Behind a bracket that is never closed nothing
is ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote

from slurm_plugin.wire import clean_note

MAX_BYTES = 1536
#: Somebody else's text beyond this is not looked at.
MAX_COMMENT_BYTES = 32768
#: Our kinds, in the order in which they are written.
KINDS = ("gpu-topo", "gpu-shape", "gpu-loan", "gpu-slots", "gpu-donor")
TOPO, SHAPE, LOAN, SLOTS, DONOR = KINDS
STATES = ("gated", "placed")

#: The states that a record of each kind may have.
_STATES_OF = {SLOTS: STATES, LOAN: ("may", "meets", "starts")}
#: Values of records that are counts, seconds or epochs.
_NUMBERS = frozenset(
    (
        *("at", "begin", "cpg", "cpt", "prio", "retry", "since", "spn", "tries"),
        *("loan_at", "loan_held", "loan_next", "loan_tries"),
    )
)
_NUMBER = re.compile(r"\d{1,12}")
_EDGE = re.compile(r"[\[\]]")
_BRACKET = re.compile(rf"\[({'|'.join(KINDS)}):([^\x00-\x1f\x7f]*)\]")
_OF = re.compile(r"of=(\d{1,10})")
_UNSAFE = re.compile(rb"[^A-Za-z0-9_.:/,=()&*+\-]")


@dataclass(frozen=True, slots=True)
class Bracket:
    """A record: `state` is one of its kind's, `values` plain texts, without the empty ones."""

    state: str
    values: Mapping[str, str] = field(default_factory=dict)
    kind: str = SLOTS

    def inside(self) -> str:
        """What stands in its bracket. Raises ValueError where that gets longer than MAX_BYTES."""
        words = [self.state]
        words += [f"{key}={_quote(value)}" for key, value in self.values.items() if value]
        text = " ".join(words)
        size = len(_bracket(self.kind, text))
        if size > MAX_BYTES:
            raise ValueError(f"the job's own request takes {size} bytes, over {MAX_BYTES}")
        return text

    def text(self) -> str:
        """The whole bracket. Raises ValueError as `inside` does."""
        return _bracket(self.kind, self.inside())

    def get(self, key: str) -> str:
        """The value of `key`, '' without."""
        return self.values.get(key, "")

    def number(self, key: str, default: int = 0) -> int:
        """The number of `key`, `default` without."""
        return int(self.values.get(key) or default)

    def is_ahead(self, key: str, now: int, longest_s: int) -> bool:
        """Is the time (epoch) of `key` still to come?

        One farther away than it is ever set was written before the clock was set back.
        """
        return 0 < self.number(key) - now <= longest_s


def _quote(text: str) -> str:
    return _UNSAFE.sub(lambda m: b"%%%02X" % m[0][0], text.encode()).decode()


def _bracket(kind: str, text: str) -> str:
    return f"[{kind}: {text}]" if text else f"[{kind}:]"


@dataclass(frozen=True, slots=True)
class _Parts:
    """A comment taken apart: what stands in ours by kind, and the `rest`."""

    ours: Mapping[str, str]
    rest: str
    is_closed: bool

    def text(self, kind: str, inside: str | None) -> str:
        """The comment with this in the bracket of `kind`; None takes it away."""
        found = {**self.ours, kind: inside}
        ours = [_bracket(kind, text) for kind in KINDS if (text := found.get(kind)) is not None]
        # Behind a bracket that is never closed ours would not count.
        parts = [self.rest, *ours] if self.is_closed else [*ours, self.rest]
        return " ".join(filter(None, parts))


@lru_cache(maxsize=4096)
def _parts(comment: str) -> _Parts:
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


def inside(comment: str, kind: str) -> str | None:
    """What stands in our bracket of `kind`; None without one."""
    return _parts(comment).ours.get(kind) if "[gpu-" in comment else None


def with_inside(comment: str, kind: str, text: str | None) -> str:
    """The comment with `text` in our bracket of `kind`; None takes the bracket away."""
    return _parts(comment).text(kind, text)


def read(comment: str, kind: str = SLOTS) -> Bracket | None:
    """The record of a comment; None without one, or with one that we did not write."""
    words = (inside(comment, kind) or "").split()
    if not words or words[0] not in _STATES_OF[kind]:
        return None
    values = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals or (key in _NUMBERS and not _NUMBER.fullmatch(value)):
            return None
        values[key] = unquote(value)
    return Bracket(words[0], values, kind)


def replaced(comment: str, record: Bracket | None) -> str:
    """The comment with `record` in place of its kind's; None takes that of the slots away."""
    if record is None:
        return with_inside(comment, SLOTS, None)
    return with_inside(comment, record.kind, record.inside())


def donor_of(comment: str) -> int:
    """The id of the job that this donor lends to; 0 for a job that is no donor."""
    match = _OF.fullmatch(inside(comment, DONOR) or "")
    return int(match[1]) if match else 0


def donor(parent: int) -> str:
    """The comment of a donor, which its user cannot change."""
    return _bracket(DONOR, f"of={parent}")


def hint_in(comment: str) -> str:
    """The hint that the comment carries, '' without."""
    return (inside(comment, TOPO) or "").partition("|")[0].strip()


def note_in(comment: str) -> str:
    """The note behind the hint, '' without."""
    return (inside(comment, TOPO) or "").partition("|")[2].strip()


def topo(hint: str, note: str) -> str:
    """`[gpu-topo: HINT | NOTE]`; '' with neither."""
    said = _said(hint, note)
    return _bracket(TOPO, said) if said else ""


def noted(comment: str, note: str) -> str:
    """The comment with this note beside its hint."""
    return with_inside(comment, TOPO, _said(hint_in(comment), note) or None)


def _said(hint: str, note: str) -> str:
    note = clean_note(note)
    return f"{hint} | {note}".strip() if note else hint
