"""What Figures 8 to 11 draw: timelines, and jobs from the worst to the best by their slowdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from papers.experiments.experiment import Series, ranked
from papers.experiments.sc17 import POLICIES
from simulation.core.record import Record, SimulatedRun
from simulation.report.metrics import quantile

#: Who has curves: the paper's four, and ours.
DRAWN = (*POLICIES, "mapa")


def lost(record: Record, *, with_wait: bool) -> float:
    """The time that a job lost over its best configuration's, 0 if none.

    Figures 8e, 10a and 11a draw that of its placement; 8f, 10b and 11b add its waiting.
    """
    best_s = record.job.duration_s if record.ideal_s is None else record.ideal_s
    began_s = record.job.submit_s if with_wait else record.start_s
    return round((record.end_s - began_s) / best_s - 1, 9) + 0.0  # never -0.0


def figures(run: SimulatedRun) -> dict[str, float]:
    """`lost_with_wait_...`: means and the 95th percentile, beside those of `summary`."""
    both = [lost(record, with_wait=True) for record in run.records]
    return {"lost_with_wait_mean": fmean(both), "lost_with_wait_p95": quantile(both, 0.95)}


def series(runs: Mapping[str, SimulatedRun]) -> Series:
    """Curves `slowdown` and `slowdown_with_wait`: (place, time lost), the worst job first."""
    return {
        name: {
            policy: ranked([lost(record, with_wait=with_wait) for record in runs[policy].records])
            for policy in DRAWN
            if policy in runs
        }
        for name, with_wait in (("slowdown", False), ("slowdown_with_wait", True))
    }


def timeline(runs: Mapping[str, SimulatedRun]) -> Series:
    """`gpus`: (GPU, start, end, job) of each policy's run on one node."""
    return {
        "gpus": {policy: _bars(runs[policy].records) for policy in DRAWN if policy in runs},
    }


def _bars(records: Sequence[Record]) -> list[list[float]]:
    return [
        [float(gpu), round(record.start_s, 3), round(record.end_s, 3), float(record.job.job_id)]
        for record in records
        for gpus in record.placement.gpus.values()
        for gpu in gpus
    ]
