"""What leaves a simulation as text: rows of a table, CSV of every job, JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from gres_topology import NodeTopology
from simulation.core.record import SimulatedRun
from simulation.report import words
from simulation.report.breakdown import figures
from simulation.report.metrics import quantile
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
    "utilisation": ("in use to the end", "share"),
    "busy_while_arriving": ("GPUs in use", "share"),
    "stranded_share": ("GPUs stranded", "share"),
    "largest_gpus": ("largest job that fits", "0"),
    "bandwidth_share": ("of ideal bandwidth", "share"),
    "pcie_rings": ("rings over PCIe", "share"),
    "waits": ("postponed", "0"),
    "forced": ("placed by force", "0"),
    "decision_median_s": ("a decision", "ms"),
}


#: How many times, and seconds, a mean wait may be the log's before that is said.
_FAR, _FAR_S = 2.0, 60.0


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
        found = figures(run, cluster)
        rows.append([run.policy, *(shown(found[m], style) for m, (_, style) in TABLE.items())])
    return rows


def first_columns(rows: Sequence[Sequence[str]], facts: Mapping[str, Any]) -> list[list[str]]:
    """Of a table the policy and its `decisive` metrics."""
    places = [0, *(1 + [*TABLE].index(metric) for metric in decisive(facts))]
    return [[row[place] for place in places] for row in rows]


def decisive(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The eight metrics that a site decides by: they stand first, all others are folded."""
    time = "slowdown_mean" if facts.get("communication") else "makespan_s"
    return (
        *("wait_mean_s", "wait_p95_s", time, "busy_while_arriving"),
        *("stranded_share", "largest_gpus", "bandwidth_share", "pcie_rings"),
    )


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
        """How many GPUs all nodes have together."""
        return sum(topology.gpus for topology in self.cluster.values())


def log_waits(report: Report) -> dict[str, float]:
    """Mean and 95th percentile of the waits in the log itself (s); {} where few jobs tell."""
    waits = [job.waited_s for job in report.trace.jobs if job.waited_s is not None]
    if len(waits) * 2 < max(1, len(report.trace.jobs)):
        return {}
    return {"wait_mean_s": fmean(waits), "wait_p95_s": quantile(waits, 0.95)}


def beside_the_log(report: Report) -> str:
    """What the jobs waited in the log, beside stock Slurm's simulated waits; "" if not known."""
    waits = log_waits(report)
    if not waits:
        return ""
    name = reference_of([run.policy for run in report.runs])
    run = next(run for run in report.runs if run.policy == name)
    own, other = waits["wait_mean_s"], fmean(record.waited_s for record in run.records)
    p95 = words.time(waits["wait_p95_s"])
    said = f"In the log itself they waited {words.time(own)} on average, 95 of 100 at most {p95}."
    if name.startswith("stock") and max(own, other) > _FAR * min(own, other) + _FAR_S:
        said += (
            f" Under the simulated {name} it is {words.time(other)}: nodes, limits, outages or"
            " other jobs are not as they were, so the policies compare with each other, and not"
            " with the log."
        )
    return said


def to_json(report: Report) -> str:
    """{trace, jobs, rejected, left_out, nodes, gpus, ..facts, policies: {name: metrics}, ...}.

    `log_waits` are those of the log itself, where it tells them. `differences` are those of each
    policy and the one that the recommendation compares with.
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
            "log_waits": log_waits(report),
            "compared_with": reference_of([run.policy for run in report.runs]),
            "differences": differences(report.runs, report.cluster),
            "policies": {run.policy: figures(run, report.cluster) for run in report.runs},
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
