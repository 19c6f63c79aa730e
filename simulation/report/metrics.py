"""A run in numbers: what a table, a CSV and an experiment report about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median

from gres_topology import NodeTopology
from simulation.core.link_quality import judge
from simulation.core.record import Record, SimulatedRun

#: A job misses its SLO when it runs over this many times its best configuration's time.
#: The paper draws "no slowdown" and gives no number; 1 % is below what it could draw.
SLO_SLOWDOWN = 1.01


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile by the nearest rank, 0 of nothing."""
    if not values:
        return 0.0
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, max(0, -int(-q * len(ranked) // 1) - 1))]


def summary(run: SimulatedRun, cluster: Mapping[str, NodeTopology]) -> dict[str, float | None]:
    """Metric -> value; times in seconds, shares from 0 to 1.

    `makespan_s` counts from the first submit to the last end; `utilisation` is the share of GPU
    time in use over it, `busy_while_arriving` that up to the last submit. `slo_violations` leaves
    out jobs placed by force. `bandwidth_share` (effective bandwidth over that of the best set of
    the size) and `pcie_rings` (rings that cross the host) are over jobs of two GPUs or more per
    node; None without any.
    """
    records = run.records
    waits = [record.waited_s for record in records]
    slowdowns = [record.slowdown for record in records]
    late = [record for record in records if record.slowdown > SLO_SLOWDOWN]
    share, hops = _links(records, cluster)
    first = min((record.job.submit_s for record in records), default=0.0)
    makespan = max((record.end_s for record in records), default=0.0) - first
    used = sum(gpus_of(record) * (record.end_s - record.start_s) for record in records)
    return {
        "jobs": len(records),
        "makespan_s": makespan,
        "wait_mean_s": fmean(waits) if waits else 0.0,
        "wait_median_s": median(waits) if waits else 0.0,
        "wait_p95_s": quantile(waits, 0.95),
        "slowdown_mean": fmean(slowdowns) if slowdowns else 1.0,
        "slowdown_p95": quantile(slowdowns, 0.95),
        "slowdown_max": max(slowdowns, default=1.0),
        "slo_violations": sum(not record.is_forced for record in late),
        "slo_violations_forced": sum(record.is_forced for record in late),
        "forced": sum(record.is_forced for record in records),
        "waits": run.waits,
        "busy_while_arriving": _busy(records, run.gpus),
        "utilisation": used / (run.gpus * makespan) if makespan > 0 and run.gpus else 0.0,
        "bandwidth_share": share,
        "pcie_rings": hops,
        "decision_median_s": median(run.decision_s) if run.decision_s else 0.0,
        "decision_max_s": max(run.decision_s, default=0.0),
    }


def _busy(records: Sequence[Record], gpus: int) -> float | None:
    """Share of GPU time in use from the first submit to the last; None if they are one."""
    if not records:
        return None
    submits = [record.job.submit_s for record in records]
    first, last = min(submits), max(submits)
    used = sum(
        gpus_of(record) * max(0.0, min(record.end_s, last) - record.start_s) for record in records
    )
    return used / (gpus * (last - first)) if last > first and gpus else None


def gpus_of(record: Record) -> int:
    """GPUs of the job, on all its nodes."""
    return sum(len(gpus) for gpus in record.placement.gpus.values())


def _links(
    records: Sequence[Record], cluster: Mapping[str, NodeTopology]
) -> tuple[float | None, float | None]:
    shares, hops = [], []
    for record in records:
        for name, gpus in record.placement.gpus.items():
            # Over 16 GPUs there are too many sets to know the best.
            if len(gpus) > 1 and cluster[name].gpus <= 16:
                verdict = judge(cluster[name], gpus)
                shares.append(verdict.share)
                hops.append(verdict.pcie_hop)
    return (fmean(shares), fmean(hops)) if shares else (None, None)
