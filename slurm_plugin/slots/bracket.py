"""The state of a job in its AdminComment: `[gpu-slots: gated token=... tpn=gpu:2 ...]`, or of a
loan where GPUs are chosen when a job starts: `[gpu-loan: meets tpn=gres/gpu:4 loan=...]`.

Slurm alone keeps it, so that an engine that starts knows what every job asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from slurm_plugin.wire import clean_note

MAX_BYTES = 1536
STATES = ("gated", "placed")
SLOTS, LOAN = "gpu-slots", "gpu-loan"

#: The states that a bracket of each kind may have.
_STATES_OF = {SLOTS: STATES, LOAN: ("may", "meets", "starts")}
_BRACKETS = {kind: re.compile(rf"\s*\[{kind}: ([^\]]*)\]") for kind in _STATES_OF}
_TOPO = re.compile(r"\s*\[gpu-topo: *([^|\]]*?) *(?:\| *([^\]]*?) *)?\]")
_OTHERS = re.compile(r"\[gpu-(?:shape|slots|loan):")
_UNSAFE = re.compile(rb"[^A-Za-z0-9_.:/,=()&*+\-]")


@dataclass(frozen=True, slots=True)
class Bracket:
    """`state` is one of its kind's; `values` are plain texts, without the empty ones."""

    state: str
    values: Mapping[str, str] = field(default_factory=dict)
    kind: str = SLOTS

    def text(self) -> str:
        """The bracket as it stands in the comment.

        Raises ValueError where it is longer than MAX_BYTES.
        """
        words = [self.state]
        words += [f"{key}={_quote(value)}" for key, value in self.values.items() if value]
        text = f"[{self.kind}: {' '.join(words)}]"
        if len(text) > MAX_BYTES:
            raise ValueError(f"the job's own request takes {len(text)} bytes, over {MAX_BYTES}")
        return text

    def get(self, key: str) -> str:
        """The value of `key`, '' without."""
        return self.values.get(key, "")


def _quote(text: str) -> str:
    return _UNSAFE.sub(lambda m: b"%%%02X" % m[0][0], text.encode()).decode()


def read(admin_comment: str, kind: str = SLOTS) -> Bracket | None:
    """The bracket in a comment; None without one, or with one that is not ours."""
    match = _BRACKETS[kind].search(admin_comment)
    words = match[1].split() if match else []
    if not words or words[0] not in _STATES_OF[kind]:
        return None
    values = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals:
            return None
        values[key] = unquote(value)
    return Bracket(words[0], values, kind)


def replaced(admin_comment: str, bracket: Bracket | None) -> str:
    """The comment with `bracket` in place of its kind's; None takes that of the slots away."""
    rest = _BRACKETS[bracket.kind if bracket else SLOTS].sub("", admin_comment).strip()
    return " ".join(part for part in (rest, bracket.text() if bracket else "") if part)


def hint_in(admin_comment: str) -> str:
    """The hint that the comment carries, '' without."""
    match = _TOPO.search(admin_comment)
    return match[1] if match else ""


def note_in(admin_comment: str) -> str:
    """The note behind the hint, '' without."""
    match = _TOPO.search(admin_comment)
    return (match[2] or "") if match else ""


def topo(hint: str, note: str) -> str:
    """`[gpu-topo: HINT | NOTE]`; '' with neither."""
    note = clean_note(note)
    said = f"{hint} | {note}".strip() if note else hint
    return f"[gpu-topo: {said}]" if said else ""


def noted(admin_comment: str, note: str) -> str:
    """The comment with this note beside its hint."""
    rest = _TOPO.sub("", admin_comment).strip()
    ours = topo(hint_in(admin_comment), note)
    # The gpu-topo bracket stands before the others, as the bridge puts them.
    found = _OTHERS.search(rest)
    at = found.start() if found else len(rest)
    before, after = rest[:at].strip(), rest[at:]
    return " ".join(part for part in (before, ours, after) if part)
