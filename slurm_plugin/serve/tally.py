"""Counts the decision log's lines as they are written: decisions, gains, what started how."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping

from slurm_plugin.base.log_lines import Line, OfLoan, OfUser, Placing, ShapeLine, StartedLine, known
from slurm_plugin.base.telemetry import SLOW_S, Histogram
from slurm_plugin.tell.explain.gains import JobGain, in_order, job_gain

#: Label sets per metric; more (a site with very many partitions) are counted together.
MAX_LABELS = 256
#: Jobs that are remembered: their last decision until they start, and that they were heard of.
MAX_JOBS = 10_000
BYTES_PER_GB = 1e9
#: The sizes that jobs of several GPUs are grouped by.
SIZES = ((2, "2"), (4, "3-4"), (8, "5-8"), (16, "9-16"))


class Tally:
    """Safe to read from another thread than the one that adds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[tuple[str, ...]]] = {}
        self._times: dict[str, dict[tuple[str, ...], Histogram]] = {}
        # The GPUs that were chosen by node, None where a job was left to Slurm; by job.
        self._decided: OrderedDict[int, Mapping[str, tuple[int, ...]] | None] = OrderedDict()
        self._heard_of: OrderedDict[int, None] = OrderedDict()

    def add(self, record: Line) -> None:
        """Count one record."""
        placing = record if isinstance(record, Placing) else None
        policy = known(record.policy) if isinstance(record, Placing | ShapeLine) else ""
        place = (record.partition if isinstance(record, OfUser) else "") or "-", policy or "-"
        applied = "yes" if placing is None or placing.applied else "no"
        with self._lock:
            self._hear(record.job)
            if isinstance(record, StartedLine):
                self._started(record)
                return
            self._count("decisions", (record.decision, *place, applied))
            if isinstance(record, OfLoan):
                return
            if placing is not None and (took_ms := known(placing.policy_ms)) is not None:
                self._time("placement", (place[1],), took_ms / 1e3)
            gain = job_gain(record)
            is_applied = gain is not None and gain.applied
            self._remember(record.job, gain.chosen if gain and is_applied else None)
            if gain is not None and is_applied:
                self._gained(gain, place)

    def _hear(self, job: int) -> None:
        self._heard_of[job] = None
        self._heard_of.move_to_end(job)
        if len(self._heard_of) > MAX_JOBS:
            self._heard_of.popitem(last=False)

    def has_heard_of(self, job: int) -> bool:
        """Was there a line about this job lately?"""
        with self._lock:
            return job in self._heard_of

    def _remember(self, job: int, chosen: Mapping[str, tuple[int, ...]] | None) -> None:
        self._decided[job] = chosen
        self._decided.move_to_end(job)
        if len(self._decided) > MAX_JOBS:
            self._decided.popitem(last=False)

    def _started(self, record: StartedLine) -> None:
        """A job started; one that was never asked about got Slurm's own choice."""
        self._count("started", ())
        job, gpus = record.job, record.gpus
        if job not in self._decided:
            if gpus:
                self._count("started_undecided", ())
            return
        chosen = self._decided.pop(job)
        if chosen is not None and in_order(chosen) != in_order(gpus):
            self._count("started_otherwise", ())

    def _gained(self, gain: JobGain, place: tuple[str, str]) -> None:
        if gain.waited_s:
            self._time("postponed", place[:1], gain.waited_s)
        if gain.chosen_gbps is not None and gain.slurm_gbps is not None:
            sized = (*place, _size(sum(map(len, gain.chosen.values()))))
            self._count("compared", sized)
            self._count("bandwidth", (*sized, "chosen"), gain.chosen_gbps * BYTES_PER_GB)
            self._count("bandwidth", (*sized, "slurm"), gain.slurm_gbps * BYTES_PER_GB)
        for choice, hops in (("chosen", gain.chosen_hops), ("slurm", gain.slurm_hops)):
            if hops is not None:
                self._count("rings", (*place, choice, "no" if hops == 0 else "yes"))

    def _count(self, name: str, labels: tuple[str, ...], amount: float = 1) -> None:
        counts = self._counts.setdefault(name, Counter())
        counts[bounded(labels, counts)] += amount  # type: ignore[assignment]  # sums, too

    def _time(self, name: str, labels: tuple[str, ...], seconds: float) -> None:
        times = self._times.setdefault(name, {})
        labels = bounded(labels, times)
        if labels not in times:
            times[labels] = Histogram(SLOW_S) if name == "postponed" else Histogram()
        times[labels].add(seconds)

    def counts(self) -> dict[str, dict[tuple[str, ...], float]]:
        """All counts so far, by metric and labels."""
        with self._lock:
            return {name: dict(counts) for name, counts in self._counts.items()}

    def times(self) -> dict[str, dict[tuple[str, ...], Histogram]]:
        """All histograms so far, by metric and labels."""
        with self._lock:
            return {name: dict(times) for name, times in self._times.items()}


def bounded(labels: tuple[str, ...], known: Mapping[tuple[str, ...], object]) -> tuple[str, ...]:
    """The labels, or "other" for each where too many are known already."""
    is_room = labels in known or len(known) < MAX_LABELS
    return labels if is_room else ("other",) * len(labels)


def _size(gpus: int) -> str:
    return next((word for most, word in SIZES if gpus <= most), "17+")
