"""Pieces of sentences: numbers, lists, times; and a whole answer in lines, or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from slurm_plugin.tell.explain.text import printable
from slurm_plugin.tell.why.state import Answer

#: Nodes and jobs named one by one.
MAX_NAMED = 8
#: What of a user's own text is repeated, in characters.
MAX_QUOTED = 60
#: A line that a user's own text made longer is cut.
MAX_LINE = 400


def gpus(count: int, free: str = "") -> str:
    """`1 GPU`, `4 free GPUs`."""
    return f"{count} {free}GPU{'' if count == 1 else 's'}"


def jobs(count: int) -> str:
    """`1 job`, `3 jobs`."""
    return f"{count} job{'' if count == 1 else 's'}"


def nodes(count: int) -> str:
    """`1 node`, `3 nodes`."""
    return f"{count} node{'' if count == 1 else 's'}"


def is_are(count: int) -> str:
    """The verb for so many."""
    return "is" if count == 1 else "are"


def by_node(counts: Mapping[str, int]) -> str:
    """`dgx1 3, dgx2 3`, most first."""
    order = sorted(counts, key=lambda name: (-counts[name], name))
    return named([f"{name} {counts[name]}" for name in order])


def named(names: Sequence[str]) -> str:
    """The first few of a list, and how many more there are."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def together(names: Sequence[str]) -> str:
    """`b1`, `b1+b2+b4`, `b1 and 7 more`."""
    return "+".join(names) if len(names) <= 4 else f"{names[0]} and {len(names) - 1} more"


def quoted(text: str) -> str:
    """A user's text, cut short."""
    return repr(text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}...")


def moment(epoch_s: float) -> str:
    """A time in ISO 8601, with the local offset from UTC."""
    return datetime.fromtimestamp(epoch_s).astimezone().isoformat(timespec="seconds")


def duration(seconds: float) -> str:
    """A time limit as --time takes it: `10`, `2:00:00`, `3-00:00:00`."""
    minutes = max(0, int(seconds // 60))
    days, rest = divmod(minutes, 1440)
    if days:
        return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00"
    return f"{minutes // 60}:{minutes % 60:02d}:00" if minutes >= 60 else str(minutes)


def in_words(answer: Answer) -> str:
    """The sentence, then one line per fact; nothing in it can move the cursor."""
    facts = list(answer.evidence)
    if answer.slurm_start:
        facts.append(("starts", f"{moment(answer.slurm_start)} as Slurm plans it"))
    if answer.our_start:
        when = moment(answer.our_start)
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
