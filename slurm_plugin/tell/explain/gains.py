"""What the site gained against stock Slurm, from the decision log: bandwidth and rings.

Stock Slurm's set is judged in its best order, so the gain is a lower bound.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from slurm_plugin.base.log_lines import (
    GivenBackLine,
    Line,
    LoggedSet,
    OrderLine,
    PassLine,
    ShapeLine,
    StartedLine,
    UseLine,
    WaitLine,
    known,
)

#: Fewer jobs than this have no interval.
FEWEST = 30
#: Ratios that differ from 1 by no more than this are as much as Slurm's.
ALIKE = 0.01


@dataclass(slots=True)
class JobGain:
    """One job's last placement beside stock Slurm's; bandwidths in GB/s, None for one GPU."""

    partition: str
    policy: str
    applied: bool
    chosen: Mapping[str, tuple[int, ...]]
    chosen_gbps: float | None
    slurm_gbps: float | None
    chosen_hops: int | None
    slurm_hops: int | None
    waited_s: int
    as_chosen: bool = True
    uid: int = -1
    #: GPUs of the whole job.
    gpus: int = 0
    #: The day of the decision, `2026-11-20`; '' where the record has no time.
    day: str = ""

    @property
    def week(self) -> str:
        """The ISO week of that day, `2026-W47`; '' where that is not known."""
        if not self.day:
            return ""
        year, week, _ = date.fromisoformat(self.day).isocalendar()
        return f"{year}-W{week:02d}"

    @property
    def ratio(self) -> float | None:
        """Our effective bandwidth over stock's; None where there is nothing to compare."""
        if self.chosen_gbps is None or not self.slurm_gbps:
            return None
        return self.chosen_gbps / self.slurm_gbps


def job_gain(record: Line) -> JobGain | None:
    """What a `use` record says; None for any other record, or one of an older release."""
    if not isinstance(record, UseLine) or not isinstance(record.chosen, LoggedSet):
        return None
    chosen, slurm = record.chosen, known(record.slurm) or LoggedSet()
    counts = known(record.gpus_per_node) or ()
    linked = any(count > 1 for count in counts)
    ring = linked and record.pattern == "ring"
    judged = linked and known(slurm.effbw_gbps) is not None
    return JobGain(
        partition=record.partition or "-",
        policy=known(record.policy) or "-",
        applied=record.applied,
        chosen=chosen.gpus,
        chosen_gbps=known(chosen.effbw_gbps) if judged else None,
        slurm_gbps=known(slurm.effbw_gbps) if judged else None,
        chosen_hops=known(chosen.pcie_hops) if ring else None,
        slurm_hops=known(slurm.pcie_hops) if ring else None,
        waited_s=record.waited_s,
        uid=record.uid,
        gpus=sum(counts),
        day=_day(record.time),
    )


def in_order(gpus: Mapping[str, tuple[int, ...]]) -> dict[str, list[int]]:
    """GPUs as sets: chosen ones are in rank order, Slurm's are not."""
    return {name: sorted(some) for name, some in gpus.items()}


def _day(stamp: str) -> str:
    try:
        return datetime.fromisoformat(stamp).date().isoformat()
    except ValueError:
        return ""


@dataclass(slots=True)
class Gains:
    """Adds up records; a job asked about again (a start that failed, a requeue) counts once."""

    jobs: dict[int, JobGain] = field(default_factory=dict)
    postponed: Counter[int] = field(default_factory=Counter)
    passes: Counter[str] = field(default_factory=Counter)
    decided: set[int] = field(default_factory=set)
    undecided: set[int] = field(default_factory=set)
    #: What donors lent until they ended: loans, GPU seconds, bytes to them and from them.
    lent: Counter[str] = field(default_factory=Counter)
    records: int = 0
    first: str = ""
    last: str = ""

    def add(self, record: Line) -> None:
        """Take one record of the log into account."""
        job, when = record.job, record.time
        self.records += 1
        self.first, self.last = self.first or when, when or self.last
        if isinstance(record, GivenBackLine):
            gpu_s = record.gpus * record.seconds
            passed = {"bytes_in": record.bytes_in, "bytes_out": record.bytes_out}
            self.lent.update({"donors": 1, "gpu_s": gpu_s, **passed})
            return
        if isinstance(record, StartedLine):
            self._started(record)
        elif not isinstance(record, ShapeLine | OrderLine):
            self.decided.add(job)
        if isinstance(record, WaitLine):
            self.postponed[job] += record.applied
        elif isinstance(record, PassLine):
            self.passes[record.why] += 1
        gain = job_gain(record)
        if gain is not None:
            self.jobs[job] = gain

    def _started(self, record: StartedLine) -> None:
        job, gain = record.job, self.jobs.get(record.job)
        if job not in self.decided and record.gpus:
            # Slurm went on without us: no answer in time, or the engine was away.
            self.undecided.add(job)
        if gain is not None and gain.applied:
            gain.as_chosen = in_order(gain.chosen) == in_order(record.gpus)

    def summary(self) -> dict[str, Any]:
        """Everything as plain values, for JSON and for words."""
        applied = [gain for gain in self.jobs.values() if gain.applied]
        observed = [gain for gain in self.jobs.values() if not gain.applied]
        waited = [gain.waited_s for gain in applied if gain.waited_s]
        return {
            "from": self.first,
            "to": self.last,
            "records": self.records,
            "placed": block(applied),
            "observed": block(observed),
            "postponements": {
                "times": self.postponed.total(),
                "jobs": sum(1 for times in self.postponed.values() if times),
                "waited_s_mean": statistics.fmean(waited) if waited else 0.0,
            },
            "lent": dict(self.lent),
            "passes": dict(self.passes.most_common()),
            "started_undecided": len(self.undecided),
            "by_partition": grouped(applied, "partition"),
            "by_policy": grouped(applied, "policy"),
        }


def grouped(gains: Iterable[JobGain], key: str) -> dict[Any, Any]:
    """Value of the JobGain's field `key` -> the `block` of its jobs."""
    groups: dict[Any, list[JobGain]] = defaultdict(list)
    for gain in gains:
        groups[getattr(gain, key)].append(gain)
    return {name: block(groups[name]) for name in sorted(groups)}


def block(gains: list[JobGain]) -> dict[str, Any]:
    """Counts, ratios and rings of some jobs; what did not start as chosen gained nothing."""
    real = [gain for gain in gains if gain.as_chosen]
    compared = [(gain, gain.ratio) for gain in real]
    ratios = sorted(ratio for _, ratio in compared if ratio is not None)
    rings = [g for g in real if g.chosen_hops is not None and g.slurm_hops is not None]
    block: dict[str, Any] = {
        "jobs": len(gains),
        "started_otherwise": len(gains) - len(real),
        "compared": len(ratios),
        "rings": len(rings),
        "rings_without_pcie": sum(g.chosen_hops == 0 for g in rings),
        "rings_without_pcie_slurm": sum(g.slurm_hops == 0 for g in rings),
    }
    if ratios:
        both = [gain for gain, ratio in compared if ratio is not None]
        block |= {
            "ratio_mean": statistics.fmean(ratios),
            "ratio_interval": _interval(ratios),
            "ratio_quartiles": _quartiles(ratios),
            "ratio_more": sum(ratio > 1 + ALIKE for ratio in ratios),
            "ratio_less": sum(ratio < 1 - ALIKE for ratio in ratios),
            "chosen_gbps_mean": statistics.fmean(g.chosen_gbps or 0.0 for g in both),
            "slurm_gbps_mean": statistics.fmean(g.slurm_gbps or 0.0 for g in both),
        }
    return block


def _interval(ratios: list[float]) -> list[float] | None:
    """Between which the mean lies with 95 % certainty; None for few jobs.

    By the normal distribution, as if jobs were independent of one another.
    """
    if len(ratios) < FEWEST:
        return None
    half = 1.96 * statistics.stdev(ratios) / len(ratios) ** 0.5
    mean = statistics.fmean(ratios)
    return [mean - half, mean + half]


def _quartiles(ordered: list[float]) -> list[float]:
    if len(ordered) == 1:
        return ordered * 3
    return statistics.quantiles(ordered, n=4, method="inclusive")
