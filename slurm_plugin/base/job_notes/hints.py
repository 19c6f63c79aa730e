"""`[gpu-topo: HINT | NOTE]`: the user's hint, and a note for people on what became of the job."""

from __future__ import annotations

import re
from collections.abc import Mapping

from policies.errors import HintError
from policies.hints import parse
from slurm_plugin.base.job_notes.brackets import TOPO, bracket, inside, with_inside
from slurm_plugin.base.wire import clean_note

#: What a user writes into a job's Comment where no bridge takes --gpu-topo.
_IN_COMMENT = re.compile(r"gpu-topo: *(.*)")
_FIGURES = re.compile(r"[\d.,]+")
_POSTPONED = re.compile(r"waiting \d+/\d+ since \d+:")
_UNTIL = re.compile(r"\(until (\d+), begin \d+\)")


def has_hint(comment: str) -> bool:
    """Does the comment have our bracket for a hint, be it an empty one?"""
    return inside(comment, TOPO) is not None


def hint_in(comment: str) -> str:
    """The hint that the comment carries, '' without."""
    return (inside(comment, TOPO) or "").partition("|")[0].strip()


def hint_in_user_comment(comment: str) -> str:
    """The hint that a user wrote into the job's Comment, '' without."""
    match = _IN_COMMENT.match(comment)
    return match[1] if match else ""


def hint_of(admin_comment: str, comment: str) -> str:
    """A job's hint: from our bracket in AdminComment, else from the user's Comment."""
    if has_hint(admin_comment):
        return hint_in(admin_comment)
    return hint_in_user_comment(comment)


def values_of(hint: str) -> Mapping[str, str]:
    """What a hint says of the job, whatever policy decides; a wrong one is taken for none."""
    for policy in ("topo-aware", "horizon"):  # a key has to have an effect under one of them
        try:
            return parse(hint, default_policy=policy).values
        except HintError:
            continue
    return {}


def note_in(comment: str) -> str:
    """The note behind the hint, '' without."""
    return (inside(comment, TOPO) or "").partition("|")[2].strip()


def has_note(comment: str, note: str) -> bool:
    """Does the comment say this already? Notes that differ in figures alone are the same."""
    return _FIGURES.sub("#", note_in(comment)) == _FIGURES.sub("#", clean_note(note))


def entry(hint: str, note: str) -> str:
    """`[gpu-topo: HINT | NOTE]`; '' with neither."""
    text = _text(hint, note)
    return bracket(TOPO, text) if text else ""


def with_note(comment: str, note: str) -> str:
    """The comment with this note beside its hint."""
    return with_inside(comment, TOPO, _text(hint_in(comment), note) or None)


def with_entry_of(comment: str, other: str) -> str:
    """The comment with the hint and the note of another one."""
    return with_inside(comment, TOPO, inside(other, TOPO))


def _text(hint: str, note: str) -> str:
    note = clean_note(note)
    return f"{hint} | {note}".strip() if note else hint


def postponed_until(comment: str) -> int | None:
    """When (epoch) Slurm tries again to start a job that the select plugin put off.

    By the note that the plugin writes (select/pure/admin_comment.c): `waiting 1/10 since 5: genie:
    ... (until 65, begin 5)`. 0 where the note does not say; None where it is no such note.
    """
    note = note_in(comment)
    if not _POSTPONED.match(note):
        return None
    until = _UNTIL.search(note)
    return int(until[1]) if until else 0
