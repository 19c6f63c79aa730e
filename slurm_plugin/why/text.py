"""An answer on a terminal, or as one JSON object."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from slurm_plugin.explain.text import printable
from slurm_plugin.why import words
from slurm_plugin.why.state import Answer

#: A line that a user's own text made longer is cut.
MAX_LINE = 400


def in_words(answer: Answer) -> str:
    """The sentence, then one line per fact; nothing in it can move the cursor."""
    facts = list(answer.evidence)
    if answer.slurm_start:
        facts.append(("starts", f"{words.moment(answer.slurm_start)} as Slurm plans it"))
    if answer.our_start:
        when = words.moment(answer.our_start)
        facts.append(("starts", f"{when} if all jobs run to their time limits"))
    facts += [("sooner", change) for change in answer.sooner]
    return in_lines(answer.sentence, facts)


def in_lines(sentence: str, facts: Iterable[tuple[str, str]]) -> str:
    """A sentence and its facts, each line cut short and without what could move the cursor."""
    lines = [sentence, *(f"  {title:{12}}  {text}" for title, text in facts)]
    return "\n".join(printable(line[:MAX_LINE]) for line in lines)


def as_json(answer: Answer) -> dict[str, Any]:
    """The same as plain values."""
    return asdict(answer) | {"evidence": [list(fact) for fact in answer.evidence]}
