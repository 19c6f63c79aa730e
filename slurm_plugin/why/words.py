"""Small pieces of sentences: numbers, lists, times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

#: Nodes and jobs named one by one.
MAX_NAMED = 8
#: What of a user's own text is repeated, in characters.
MAX_QUOTED = 60


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
