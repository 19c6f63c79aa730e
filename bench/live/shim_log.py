"""The select plugin's lines in slurmctld's log: what each decision cost.

One line per job the plugin asked about: `gputopo: job=ID added_us=N result=WORD ...`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

_LINE = re.compile(r"gputopo: job=(\d+) added_us=(\d+) result=(\S+)")


class Added(NamedTuple):
    """One intercepted start: the time the plugin added, and what came of it."""

    job: int
    added_us: int
    result: str


def read(lines: Iterable[str]) -> list[Added]:
    """Every such line, in order; other lines are skipped."""
    matches = (_LINE.search(line) for line in lines)
    return [Added(int(m[1]), int(m[2]), m[3]) for m in matches if m]


def results(added: Iterable[Added]) -> dict[str, int]:
    """How often each result came."""
    return dict(Counter(one.result for one in added).most_common())
