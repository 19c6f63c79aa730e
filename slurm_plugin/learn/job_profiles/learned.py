"""Run times learned from finished jobs, as in the paper's profile (SC17, section 5.1).

The 95th percentile of at least five runs from start to end, alone and beside another job, each for
GPUs on one socket and over several. Only jobs that name a profile (`profile=`) and are COMPLETED
count. Each user's runs are kept apart (`Kind.user`), so that nobody can move the jobs of others by
the name of a profile.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from policies.contract.interference import NOBODY, Kind
from slurm_plugin.base.rows_file import RowsFile

logger = logging.getLogger(__name__)

#: How many runs a time needs before it is used, and how many of each sort are kept.
ENOUGH, KEPT = 5, 200
#: Most sorts of runs that are kept, in all and of one user; the oldest are forgotten.
MOST_SORTS, MOST_OF_ONE = 4_000, 200
#: What is kept takes less than this; a larger file was not written by us.
MAX_BYTES = 32 << 20


#: Slowdowns that differ by less are the same: new ones cost every solution that is kept.
STEP = 0.02

#: A kind of job, or a pair of them.
Key = TypeVar("Key")


def coarse(slowdowns: Mapping[Key, float]) -> dict[Key, float]:
    """In steps, so that every job that ends does not change what policies know."""
    return {pair: round(round(factor / STEP) * STEP, 4) for pair, factor in slowdowns.items()}


class Sort(NamedTuple):
    """Runs that can be compared: what, where, and beside whom (None: nobody)."""

    kind: Kind
    is_packed: bool
    other: Kind | None = None


class _Row(msgspec.Struct):
    kind: Kind
    is_packed: bool
    seconds: list[float]
    other: Kind | None = None


def p95(seconds: list[float]) -> float:
    """The 95th percentile by the nearest rank."""
    ranked = sorted(seconds)
    return ranked[max(0, math.ceil(0.95 * len(ranked)) - 1)]


class Learned:
    """Run times by sort, kept in one JSON file (`path` None: in memory only)."""

    def __init__(self, path: Path | None) -> None:
        self._file = RowsFile(path, list[_Row], MAX_BYTES, 0o640) if path is not None else None
        self._runs: dict[Sort, list[float]] = {}
        self._is_dirty = False
        self.reload()

    def reload(self) -> None:
        """Know what the file says, and no more."""
        if self._file is not None:
            self._load(self._file)

    def add(self, sort: Sort, seconds: float) -> None:
        """One finished run."""
        runs = self._runs.pop(sort, [])
        self._forget_oldest(sort.kind.user)
        self._runs[sort] = [*runs, round(seconds, 1)][-KEPT:]
        self._is_dirty = True

    def _forget_oldest(self, user: int) -> None:
        """Forget the oldest sorts, so that one more of this user is within the bounds."""
        own = [sort for sort in self._runs if sort.kind.user == user]
        oldest = own if len(own) >= MOST_OF_ONE else list(self._runs)
        most = MOST_OF_ONE if oldest is own else MOST_SORTS
        for sort in oldest[: max(0, len(oldest) - most + 1)]:
            del self._runs[sort]

    def seconds(self, sort: Sort) -> float | None:
        """The 95th percentile of a sort; None while there are too few runs."""
        runs = self._runs.get(sort, [])
        return p95(runs) if len(runs) >= ENOUGH else None

    def slowdowns(self) -> Mapping[tuple[Kind, Kind], float]:
        """Time beside over time alone, same kind and placement; packed where both are known."""
        slowdowns: dict[tuple[Kind, Kind], float] = {}
        for is_packed in (False, True):
            for sort in self._runs:
                if sort.other is None or sort.is_packed != is_packed:
                    continue
                beside, alone = self.seconds(sort), self.seconds(sort._replace(other=None))
                if beside and alone:
                    slowdowns[sort.kind, sort.other] = max(1.0, beside / alone)
        return slowdowns

    def spreads(self) -> Mapping[Kind, float]:
        """Time alone on GPUs of several sockets over that on those of one, by kind."""
        spreads: dict[Kind, float] = {}
        for sort in self._runs:
            if sort.other is None and sort.is_packed:
                near, far = self.seconds(sort), self.seconds(sort._replace(is_packed=False))
                if near and far:
                    spreads[sort.kind] = far / near
        return spreads

    def save(self) -> None:
        """Write what is new; a disk that is full costs a line in the log."""
        if self._is_dirty and self._file is not None:
            rows = [_Row(s.kind, s.is_packed, runs, s.other) for s, runs in self._runs.items()]
            self._is_dirty = not self._file.write(rows)

    def _load(self, file: RowsFile[_Row]) -> None:
        rows = file.read()
        known = [row for row in rows if NOBODY not in (row.kind.user, row.other and row.other.user)]
        if len(known) < len(rows):
            message = "%s: %d of %d sorts of runs are left out: an older release did not note whose"
            logger.warning(message, file.path, len(rows) - len(known), len(rows))
        of: Counter[int] = Counter()
        self._runs, self._is_dirty = {}, False
        for row in known[:MOST_SORTS]:
            of[row.kind.user] += 1
            if of[row.kind.user] <= MOST_OF_ONE:
                self._runs[Sort(row.kind, row.is_packed, row.other)] = row.seconds[-KEPT:]
