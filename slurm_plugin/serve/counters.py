"""What `gputopo status` counts of questions and answers."""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import Any

from slurm_plugin.base.telemetry import Histogram

#: Latest answers per verb from which the percentiles are taken.
WINDOW = 4096
#: Distinct reasons kept; further ones are counted together.
MAX_REASONS = 64


class Counters:
    """What `gputopo status` counts; one thread writes, `snapshot` copies, also in another."""

    def __init__(self, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self.started = time.monotonic()
        self.messages: Counter[str] = Counter()
        self.replies: Counter[str] = Counter()
        self.passes: Counter[str] = Counter()
        self.late = 0
        #: As the bridge told last: what its budget let pass unasked.
        self.budget_out = 0
        self._times: dict[str, deque[float]] = {}
        #: How long answers took since the start, by verb.
        self.answers: dict[str, Histogram] = {}

    def answered(self, verb: str, reply: str, took_s: float) -> None:
        """One message of `verb` was answered with `reply` in `took_s` seconds."""
        self.messages[verb] += 1
        self.replies[reply] += 1
        self.late += took_s > self.deadline_s
        times = self._times.get(verb)
        if times is None:
            times = self._times[verb] = deque(maxlen=WINDOW)
            self.answers[verb] = Histogram()
        times.append(took_s)
        self.answers[verb].add(took_s)

    def passed(self, reason: str) -> None:
        """A question went to Slurm's own choice for `reason` (a fixed sentence)."""
        known = reason in self.passes or len(self.passes) < MAX_REASONS
        self.passes[reason if known else "other"] += 1

    def snapshot(self) -> dict[str, Any]:
        """Everything counted, times in milliseconds."""
        return {
            "uptime_s": round(time.monotonic() - self.started, 1),
            "messages": dict(self.messages),
            "replies": dict(self.replies),
            "passes": dict(self.passes),
            "late": self.late,
            "budget_out": self.budget_out,
            # Copies: the metrics' thread calls this while answers are counted.
            "answer_ms": {v: _percentiles(deque(t)) for v, t in self._times.copy().items()},
        }


def _percentiles(times: deque[float]) -> dict[str, float]:
    ordered = sorted(times)
    last = len(ordered) - 1
    return {
        "p50": round(ordered[last // 2] * 1e3, 4),
        "p99": round(ordered[min(last, round(last * 0.99))] * 1e3, 4),
        "max": round(ordered[last] * 1e3, 4),
    }
