"""Pictures of simulated runs, as SVG text: needs matplotlib (the extra `plot`).

Drawn on figures of their own, never on a screen or a global state.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gres_topology import NodeTopology
from gres_topology.drawing import figure
from simulation.core.record import Record, SimulatedRun
from simulation.report.metrics import busy_over_time

#: More rows than this cannot be told apart in a timeline: the first ones are drawn.
TIMELINE_GPUS = 64
#: Points of a curve; more cannot be seen.
POINTS = 2000


def available() -> bool:
    """Whether matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def _figure(width: float, height: float, draw: Callable[[Any], None]) -> str:
    """One SVG with one pair of axes, without the prologue of a file of its own."""
    with figure(width, height, is_constrained=True, font_size=9) as drawn:
        draw(drawn.add_subplot())
        text = io.StringIO()
        drawn.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def timeline(
    run: SimulatedRun, cluster: Mapping[str, NodeTopology], *, legend: bool = False
) -> str:
    """Which job held which GPU when: one row per GPU, a colour per job."""
    rows = [(name, gpu) for name in sorted(cluster) for gpu in range(cluster[name].gpus)]
    place = {row: at for at, row in enumerate(rows[:TIMELINE_GPUS])}

    def draw(axes: Any) -> None:
        for number, record in enumerate(run.records):
            for name, gpus in record.placement.gpus.items():
                for gpu in gpus:
                    if (name, gpu) in place:
                        _bar(axes, place[name, gpu], record, number, legend)
        axes.set_yticks(range(len(place)), [f"{name}:{gpu}" for name, gpu in place], fontsize=6)
        axes.invert_yaxis()
        axes.set_xlabel("seconds")
        shown = f" (first {TIMELINE_GPUS} of {len(rows)} GPUs)" if len(rows) > len(place) else ""
        axes.set_title(run.policy + shown)

    return _figure(9, 1 + 0.14 * max(6, len(place)), draw)


def _bar(axes: Any, row: int, record: Record, number: int, legend: bool) -> None:
    colour = f"C{number % 10}"
    axes.barh(row, record.end_s - record.start_s, left=record.start_s, height=0.85,
              color=colour, edgecolor="white", linewidth=0.4)  # fmt: skip
    if legend:
        # A log's name for a job: a dollar sign in it begins no formula.
        name = f" {record.job.name or record.job.job_id}"
        axes.text(record.start_s, row, name, va="center", fontsize=7, parse_math=False)


def _curves(title: str, label: str, curves: Mapping[str, Sequence[float]], log: bool) -> str:
    """One curve per policy: jobs from worst to best, as the paper's figures 8, 10 and 11."""

    def draw(axes: Any) -> None:
        for name, values in curves.items():
            ranked = sorted(values, reverse=True)
            step = max(1, len(ranked) // POINTS)
            axes.plot(range(0, len(ranked), step), ranked[::step], label=name, linewidth=1.3)
        if log:
            axes.set_yscale("symlog", linthresh=1)
        axes.set_title(title)
        axes.set_xlabel("jobs, worst first")
        axes.set_ylabel(label)
        axes.legend()

    return _figure(7, 3.2, draw)


def slowdowns(runs: Sequence[SimulatedRun]) -> str:
    """Run time over the best configuration's, jobs from worst to best."""
    curves = {run.policy: [record.slowdown for record in run.records] for run in runs}
    return _curves("Slowdown against the best configuration", "times", curves, log=False)


def waits(runs: Sequence[SimulatedRun]) -> str:
    """Waiting time, jobs from worst to best, on a logarithmic scale from one second on."""
    curves = {run.policy: [record.waited_s for record in run.records] for run in runs}
    return _curves("Waiting time", "seconds", curves, log=True)


def utilisation(runs: Sequence[SimulatedRun]) -> str:
    """GPUs in use over time; thinned to what can be seen, each point exact."""

    def draw(axes: Any) -> None:
        for run in runs:
            points = list(busy_over_time(run.records))
            points = points[:: max(1, len(points) // POINTS)]
            axes.step([at for at, _ in points], [busy for _, busy in points], where="post",
                      label=run.policy, linewidth=1)  # fmt: skip
        axes.set_ylim(bottom=0)
        axes.set_title(f"GPUs in use (of {max((run.gpus for run in runs), default=0)})")
        axes.set_xlabel("seconds")
        axes.legend()

    return _figure(7, 3.2, draw)
