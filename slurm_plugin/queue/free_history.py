"""What of the free GPUs jobs could use, noted now and then, for `gputopo report` and the page.

A file beside the decision log, replaced as a whole at each reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean, median
from typing import Any

import msgspec

from policies.fragmentation import Fragmentation
from slurm_plugin.base.rows_file import RowsFile, decoded
from slurm_plugin.config.sections import DecisionLogConfig

#: Three months of a reading every ten minutes; some 60 bytes each.
MOST_ROWS = 13_000
MOST_BYTES = 8 << 20
_MODE = 0o640


class FreeReading(msgspec.Struct, array_like=True, frozen=True):
    """One reading of Slurm, by the definitions of `policies.fragmentation`."""

    #: When Slurm was read (epoch).
    at: float
    gpus: int
    free: int
    stranded: int
    #: From 0 to 1.
    fragmentation: float
    #: Nodes of the largest job that could start, and GPUs on each.
    nodes: int
    per_node: int

    @classmethod
    def of(cls, at: float, figures: Fragmentation) -> FreeReading:
        """The reading that is kept of these figures, taken at `at` (epoch)."""
        share = round(figures.share, 4)
        counts = (figures.total, figures.free, figures.stranded)
        return cls(round(at), *counts, share, *figures.largest_over_nodes)

    @property
    def largest(self) -> int:
        """GPUs of the largest job that could start, as many on each of its nodes."""
        return self.nodes * self.per_node


class FreeHistory:
    """The readings there are; the engine adds to them, others read."""

    def __init__(self, log: DecisionLogConfig) -> None:
        path = log.path.with_name(f"{log.path.stem}.free.json")
        self._file = RowsFile(path, list[FreeReading], MOST_BYTES, _MODE)
        self._rows: list[FreeReading] | None = None

    def add(self, row: FreeReading) -> None:
        """One more; the oldest go when there are too many."""
        rows = self._file.read() if self._rows is None else self._rows
        self._rows = [*rows[1 - MOST_ROWS :], row]
        self._file.write(self._rows)

    def since(self, first: float | None) -> list[FreeReading]:
        """The readings after `first` (epoch), all without it; oldest first."""
        return [row for row in self._file.read() if first is None or row.at >= first]

    def checked(self, first: float) -> list[FreeReading]:
        """The same, for who tells people that the file is damaged.

        FileNotFoundError where there is none; PluginError where it cannot be read.
        """
        rows = decoded(self._file.path, list[FreeReading], MOST_BYTES)
        return [row for row in rows if row.at >= first]


def over_time(rows: Iterable[FreeReading]) -> dict[str, Any]:
    """Sums of some readings, for JSON and for words; shares are of all GPUs, from 0 to 1."""
    known = [row for row in rows if row.gpus > 0]
    if not known:
        return {"readings": 0}
    stranded = [row.stranded / row.gpus for row in known]
    largest = sorted(row.largest for row in known)
    return {
        "readings": len(known),
        "free_mean": round(fmean(row.free / row.gpus for row in known), 4),
        "stranded_mean": round(fmean(stranded), 4),
        "stranded_most": round(max(stranded), 4),
        "fragmentation_mean": round(fmean(row.fragmentation for row in known), 4),
        "largest_median": round(median(largest)),
        #: In nine of ten readings a job of this size could start.
        "largest_lowest_tenth": largest[len(largest) // 10],
    }
