"""What the site gained against stock Slurm, from the decision log: bandwidth and rings.

Stock Slurm's set is judged in its best order, so the gain is a lower bound.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from slurm_plugin.explain.story import GIVEN_BACK


@dataclass(slots=True)
class JobGain:
    """One job's last placement beside stock Slurm's; bandwidths in GB/s, None for one GPU."""

    partition: str
    policy: str
    applied: bool
    chosen: Mapping[str, list[int]]
    chosen_gbps: float | None
    slurm_gbps: float | None
    chosen_hops: int | None
    slurm_hops: int | None
    waited_s: int
    as_chosen: bool = True
    uid: int = -1
    #: GPUs of the whole job.
    gpus: int = 0
    #: The ISO week of the decision, `2026-W47`; '' where the record has no time.
    week: str = ""

    @property
    def ratio(self) -> float | None:
        """Our effective bandwidth over stock's; None where there is nothing to compare."""
        if self.chosen_gbps is None or not self.slurm_gbps:
            return None
        return self.chosen_gbps / self.slurm_gbps


def job_gain(record: Mapping[str, Any]) -> JobGain | None:
    """What a `use` record says; None for any other record, or one of an older release."""
    if record.get("decision") != "use" or "chosen" not in record:
        return None
    chosen, slurm = record["chosen"], record.get("slurm", {})
    linked = any(count > 1 for count in record.get("gpus_per_node", ()))
    ring = linked and record.get("pattern") == "ring"
    judged = linked and "effbw_gbps" in slurm
    return JobGain(
        partition=str(record.get("partition") or "-"),
        policy=str(record.get("policy") or "-"),
        applied=bool(record.get("applied", True)),
        chosen=chosen["gpus"],
        chosen_gbps=float(chosen["effbw_gbps"]) if judged else None,
        slurm_gbps=float(slurm["effbw_gbps"]) if judged else None,
        chosen_hops=chosen.get("pcie_hops") if ring else None,
        slurm_hops=slurm.get("pcie_hops") if ring else None,
        waited_s=int(record.get("waited_s", 0)),
        uid=int(record.get("uid", -1)),
        gpus=sum(record.get("gpus_per_node", ())),
        week=_week(str(record.get("time", ""))),
    )


def _week(stamp: str) -> str:
    try:
        year, week, _ = datetime.fromisoformat(stamp).isocalendar()
    except ValueError:
        return ""
    return f"{year}-W{week:02d}"


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

    def add(self, record: Mapping[str, Any]) -> None:
        """Take one record of the log into account."""
        job, decision = int(record.get("job", 0)), record.get("decision")
        when = str(record.get("time", ""))
        self.records += 1
        self.first, self.last = self.first or when, when or self.last
        if decision == GIVEN_BACK:
            gpu_s = int(record.get("gpus", 0)) * int(record.get("seconds", 0))
            passed = {key: int(record.get(key, 0)) for key in ("bytes_in", "bytes_out")}
            self.lent.update({"donors": 1, "gpu_s": gpu_s, **passed})
            return
        if decision not in ("started", "shape", "order"):
            self.decided.add(job)
        elif decision == "started" and job not in self.decided and record.get("gpus"):
            # Slurm went on without us: no answer in time, or the engine was away.
            self.undecided.add(job)
        if decision == "wait":
            self.postponed[job] += bool(record.get("applied", True))
        elif decision == "pass":
            self.passes[str(record.get("why", "?"))] += 1
        elif decision == "started" and job in self.jobs and self.jobs[job].applied:
            chosen = {name: sorted(gpus) for name, gpus in self.jobs[job].chosen.items()}
            self.jobs[job].as_chosen = chosen == record.get("gpus")
        gain = job_gain(record)
        if gain is not None:
            self.jobs[job] = gain

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
            "ratio_quartiles": _quartiles(ratios),
            "chosen_gbps_mean": statistics.fmean(g.chosen_gbps or 0.0 for g in both),
            "slurm_gbps_mean": statistics.fmean(g.slurm_gbps or 0.0 for g in both),
        }
    return block


def _quartiles(ordered: list[float]) -> list[float]:
    if len(ordered) == 1:
        return ordered * 3
    return statistics.quantiles(ordered, n=4, method="inclusive")
