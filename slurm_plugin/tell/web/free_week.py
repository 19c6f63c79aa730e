"""The last seven days of free GPUs, as the engine noted them beside its decision log."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from operator import attrgetter
from statistics import median
from typing import Any

from slurm_plugin.errors import PluginError
from slurm_plugin.queue.free_history import FreeReading

WEEK_S = 7 * 86_400.0
#: Points of a chart: with readings every ten minutes, all of a week.
MOST_POINTS = 1_008
#: Seconds for which one reading of the file is given out again.
KEEP_S = 60.0
#: Points this many times further apart than is usual, or so many seconds, have a gap between them:
#: nobody looked.
GAP, MOST_APART_S = 2.5, 7_200.0

NOTHING = "The engine has noted nothing of free GPUs in the last seven days."
DAMAGED = "What the engine noted of free GPUs cannot be read."


class FreeWeek:
    """The file, read when somebody asks and at most once a minute; any thread may ask."""

    def __init__(
        self,
        readings: Callable[[float], list[FreeReading]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`readings` gives those since an epoch; FileNotFoundError, PluginError where it cannot."""
        self._readings, self._clock = readings, clock
        self._kept: tuple[float, dict[str, Any], str] = (float("-inf"), {}, "")

    def summary(self, uid: int | None) -> dict[str, Any]:
        """Points of [epoch, GPUs, free, stranded, those of the largest job that could start].

        Beside them `apart_s`, beyond which two points have a gap between them, the week's ends
        (epochs), and a `problem` in one line, '' for none; who sees all (None) is told why.
        """
        now = self._clock()
        read_at, week, why = self._kept
        if not 0 <= now - read_at < KEEP_S:
            week, why = self._read(now)
            self._kept = now, week, why
        return {**week, "problem": why if why and uid is None else week["problem"]}

    def _read(self, now: float) -> tuple[dict[str, Any], str]:
        rows: list[FreeReading] = []
        problem, why = "", ""
        try:
            # A clock that was wrong may have noted times to come.
            rows = [row for row in self._readings(now - WEEK_S) if row.gpus > 0 and row.at <= now]
            rows.sort(key=attrgetter("at"))
        except FileNotFoundError:
            pass
        except PluginError as error:
            problem, why = DAMAGED, str(error)
        if not rows and not problem:
            problem = NOTHING
        every = -(-len(rows) // MOST_POINTS) or 1
        # From the last one on, which is what the chart ends with.
        shown = rows[::-every][::-1]
        apart = [after.at - before.at for before, after in pairwise(shown)]
        week = {
            "points": [[row.at, row.gpus, row.free, row.stranded, row.largest] for row in shown],
            "apart_s": min(GAP * median(apart), every * MOST_APART_S) if apart else 0.0,
            "from": now - WEEK_S,
            "to": now,
            "problem": problem,
        }
        return week, why
