"""What leaves a simulation as text: rows of a table, CSV of every job, JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gres_topology import NodeTopology
from simulation.core.record import SimulatedRun
from simulation.report import words
from simulation.report.breakdown import room
from simulation.report.metrics import summary
from simulation.report.recommendation import differences, recommendation, reference_of
from simulation.traces import Trace

#: Metric -> heading and how it is shown, in the order of the table.
TABLE: dict[str, tuple[str, str]] = {
    "makespan_s": ("makespan", "time"),
    "wait_mean_s": ("mean wait", "time"),
    "wait_median_s": ("median wait", "time"),
    "wait_p95_s": ("wait, 95th pct", "time"),
    "slowdown_mean": ("mean slowdown", "2"),
    "slo_violations": ("slowed > 1 %", "0"),
    "utilisation": ("GPUs in use", "share"),
    "busy_while_arriving": ("while jobs arrive", "share"),
    "stranded_share": ("GPUs stranded", "share"),
    "largest_gpus": ("largest job that fits", "0"),
    "bandwidth_share": ("of ideal bandwidth", "share"),
    "pcie_rings": ("rings over PCIe", "share"),
    "waits": ("postponed", "0"),
    "forced": ("placed by force", "0"),
    "decision_median_s": ("a decision", "ms"),
}


def shown(value: float | None, style: str) -> str:
    """One figure as text: `time` in the unit that fits, `share` in per cent, digits else."""
    if value is None:
        return "-"
    if style == "share":
        return words.share(value)
    if style == "ms":
        return f"{1000 * value:.2f} ms"
    if style == "time":
        return words.time(value)
    return f"{value:,.{style}f}"


def table(runs: Sequence[SimulatedRun], cluster: Mapping[str, NodeTopology]) -> list[list[str]]:
    """Heading and one row per policy, as text."""
    rows = [["policy", *(heading for heading, _ in TABLE.values())]]
    for run in runs:
        figures = summary(run, cluster) | room(run, cluster)
        rows.append([run.policy, *(shown(figures[m], style) for m, (_, style) in TABLE.items())])
    return rows


@dataclass(frozen=True, slots=True)
class Report:
    """What is told of a simulation: a run per policy, on which nodes, of which log."""

    runs: Sequence[SimulatedRun]
    cluster: Mapping[str, NodeTopology]
    trace: Trace
    #: The settings of the runs, by the names under which they are told.
    facts: Mapping[str, Any]

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(topology.gpus for topology in self.cluster.values())


def to_json(report: Report) -> str:
    """{trace, jobs, rejected, left_out, nodes, gpus, ..facts, policies: {name: metrics}, ...}.

    `differences` are those of each policy and the one that the recommendation compares with.
    """
    trace = report.trace
    return json.dumps(
        {
            "trace": trace.source,
            "format": trace.format,
            "jobs": len(trace.jobs),
            "rejected": [{"where": row.where, "reason": row.reason} for row in trace.rejected],
            "left_out": trace.left_out,
            "nodes": len(report.cluster),
            "gpus": report.gpus,
            **report.facts,
            "recommendation": recommendation(report.runs, report.cluster, report.facts),
            "compared_with": reference_of([run.policy for run in report.runs]),
            "differences": differences(report.runs, report.cluster),
            "policies": {
                run.policy: summary(run, report.cluster) | room(run, report.cluster)
                for run in report.runs
            },
        },
        indent=2,
    )


def to_csv(runs: Iterable[SimulatedRun]) -> str:
    """One line per policy and job; `gpus` as node:GPU+GPU, nodes separated by spaces."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(
        ["policy", "job_id", "user", "submit_s", "start_s", "end_s", "wait_s", "slowdown",
         "postponed", "forced", "gpus"]
    )  # fmt: skip
    for run in runs:
        for record in run.records:
            gpus = (
                f"{name}:{'+'.join(map(str, order))}"
                for name, order in record.placement.gpus.items()
            )
            job = record.job
            times = (job.submit_s, record.start_s, record.end_s, record.waited_s)
            out.writerow(
                [
                    run.policy,
                    job.called,
                    job.user,
                    *(f"{t:.3f}" for t in times),
                    f"{record.slowdown:.4f}",
                    record.postponed,
                    int(record.is_forced),
                    " ".join(gpus),
                ]
            )
    return text.getvalue()


def left_out_by_kind(trace: Trace) -> list[str]:
    """What of the log nobody meant to simulate, one sentence per kind."""
    return [f"{count} left out: {kind}" for kind, count in sorted(trace.left_out.items())]


def left_out(trace: Trace) -> list[str]:
    """What of the log was not simulated, one sentence per kind."""
    lines = left_out_by_kind(trace)
    if trace.rejected:
        lines.append(f"{len(trace.rejected)} rows cannot be used")
    return lines
