"""The select plugin's lines in slurmctld's log: what each decision cost.

One line per job the plugin asked about: `gputopo: job=ID added_us=N result=WORD ...`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from bench.measure import quantile

_LINE = re.compile(r"gputopo: job=(\d+) added_us=(\d+) result=(\S+)(?: nodes=(\S+))?")
_OWN = re.compile(r"gputopo: stats .* own_us_median=(\d+) own_us_max=(\d+)")


class Added(NamedTuple):
    """One intercepted start: the time the plugin added, and what came of it."""

    job: int
    added_us: int
    result: str
    #: `all` where the engine chose among all nodes that the job may use; `own`, or not said.
    nodes: str | None = None


def read(lines: Iterable[str]) -> list[Added]:
    """Every such line, in order; other lines are skipped."""
    matches = (_LINE.search(line) for line in lines)
    return [Added(int(m[1]), int(m[2]), m[3], m[4]) for m in matches if m]


def results(added: Iterable[Added]) -> dict[str, int]:
    """How often each result came."""
    return dict(Counter(one.result for one in added).most_common())


def own_us(lines: Iterable[str]) -> tuple[int, int] | None:
    """The plugin's own part: the median of the medians that it logged, and the most.

    It logs them every hundred starts; None where there were fewer.
    """
    pairs = [(int(m[1]), int(m[2])) for m in map(_OWN.search, lines) if m]
    if not pairs:
        return None
    return round(quantile([median for median, _ in pairs], 0.5)), max(most for _, most in pairs)
