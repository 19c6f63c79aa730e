"""What finished jobs taught: the 95th percentile of their run times, by kind and surroundings.

As the paper's profile (SC17, section 5.1): the 95th percentile of at least five runs, alone and
beside another job, each for GPUs on one socket and over several. Only jobs that say what they
are (`profile=`) and that Slurm calls COMPLETED teach; times are from start to end.
"""

from __future__ import annotations

import logging
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from policies.interference import Kind

logger = logging.getLogger(__name__)

#: Runs before a time is believed, and runs kept of each sort.
ENOUGH, KEPT = 5, 200
#: Sorts of runs remembered; a site has fewer.
MOST_SORTS = 20_000


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
        self._path = path
        self._runs: dict[Sort, list[float]] = {}
        self._is_dirty = self._is_failing = False
        if path is not None:
            self._load(path)

    def add(self, sort: Sort, seconds: float) -> None:
        """One finished run."""
        if sort not in self._runs and len(self._runs) >= MOST_SORTS:
            return
        runs = self._runs.setdefault(sort, [])
        runs.append(round(seconds, 1))
        del runs[:-KEPT]
        self._is_dirty = True

    def seconds(self, sort: Sort) -> float | None:
        """The 95th percentile of a sort; None while there are too few runs."""
        runs = self._runs.get(sort, [])
        return p95(runs) if len(runs) >= ENOUGH else None

    def slowdowns(self) -> Mapping[tuple[Kind, Kind], float]:
        """Time beside over time alone, same kind and placement; packed where both are known."""
        found: dict[tuple[Kind, Kind], float] = {}
        for is_packed in (False, True):
            for sort in self._runs:
                if sort.other is None or sort.is_packed != is_packed:
                    continue
                beside, alone = self.seconds(sort), self.seconds(sort._replace(other=None))
                if beside and alone:
                    found[sort.kind, sort.other] = max(1.0, beside / alone)
        return found

    def save(self) -> None:
        """Write what is new; a disk that is full costs a line in the log."""
        if not self._is_dirty or self._path is None:
            return
        rows = [_Row(s.kind, s.is_packed, runs, s.other) for s, runs in self._runs.items()]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=".learned-")
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(rows))
            os.chmod(name, 0o640)
            os.replace(name, self._path)
            self._is_dirty = self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                logger.error("%s: what jobs taught is not written: %s", self._path, error)
            self._is_failing = True

    def _load(self, path: Path) -> None:
        try:
            rows = msgspec.json.decode(path.read_bytes(), type=list[_Row])
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError) as error:
            # It can be learned again; the engine need not fail for it.
            logger.error("%s: cannot be read: %s; starting anew", path, error)
            return
        for row in rows[:MOST_SORTS]:
            self._runs[Sort(row.kind, row.is_packed, row.other)] = row.seconds[-KEPT:]
