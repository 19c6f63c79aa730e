"""Plots like the papers' figures, of an experiment's result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gres_topology.pictures import Pane, Picture, charts, rows, sheet
from papers.experiments import Result
from papers.reproduction.boxes import boxes

QUANTILES = ("min", "p25", "p50", "p75", "max")


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot, drawn from a result's figures or from one of its `series`.

    - `bars`: a group for each metric, a bar for each policy.
    - `lines`: a line for each policy; `metrics` maps a metric to its place on the x axis.
    - `boxes`: a group for each of `metrics`, whose `{}` stands for min, p25, p50, p75 and max.
    - `curves`: the result's `series[source]`, label -> points (x, y).
    - `timeline`: the result's `series[source]`, label -> bars (row, start, end, job).

    Standard deviations are drawn as error bars, the paper's figures as crosses.
    """

    #: Of its file.
    name: str
    title: str
    kind: Literal["bars", "lines", "boxes", "curves", "timeline"]
    y: str
    x: str = ""
    #: Metric -> its label or place.
    metrics: Mapping[str, str | float] = field(default_factory=dict)
    #: None: every policy that has one of the metrics.
    policies: tuple[str, ...] | None = None
    source: str = ""
    is_log: bool = False


def drawn(result: Result, plot: Plot) -> Picture:
    """The plot of a result."""
    return _DRAW[plot.kind](result, plot, f"{plot.title}{_seeds(result)}")


def together(result: Result, plots: Sequence[Plot]) -> Picture:
    """All plots of a result below each other."""
    charts_of_it = [drawn(result, plot) for plot in plots]
    return sheet(
        result.experiment, [], [Pane(chart, min(chart.width, 1000)) for chart in charts_of_it]
    )


def _seeds(result: Result) -> str:
    if not result.seeds:
        return ""
    listed = ", ".join(map(str, result.seeds))
    if len(result.seeds) > 3:
        listed = f"{result.seeds[0]} to {result.seeds[-1]}, {len(result.seeds)} in all"
    return f" (seeds {listed})" if len(result.seeds) > 1 else f" (seed {listed})"


def _chosen(result: Result, plot: Plot) -> list[str]:
    wanted = result.measured if plot.policies is None else plot.policies
    return [name for name in wanted if any(_has(result, name, m) for m in plot.metrics)]


def _has(result: Result, policy: str, metric: str) -> bool:
    return result.measured.get(policy, {}).get(metric.replace("{}", "p50")) is not None


def _papers(result: Result, names: Sequence[str], metrics: Sequence[str]) -> charts.Values:
    """The paper's figures of those policies of which it prints any."""
    rows = {name: result.paper.get(name, {}) for name in names}
    printed = {name: [row.get(metric) for metric in metrics] for name, row in rows.items()}
    return {name: some for name, some in printed.items() if any(v is not None for v in some)}


def _bars(result: Result, plot: Plot, title: str) -> Picture:
    names, metrics = _chosen(result, plot), list(plot.metrics)
    rows = {name: result.measured.get(name, {}) for name in names}
    return charts.bars(
        title,
        [str(label) for label in plot.metrics.values()],
        {name: [row.get(metric) for metric in metrics] for name, row in rows.items()},
        x=plot.x,
        y=plot.y,
        spread={name: [row.get(f"{m}_sd") for m in metrics] for name, row in rows.items()},
        crosses=_papers(result, names, metrics),
        crosses_mean="the paper",
        is_log=plot.is_log,
    )


def _lines(result: Result, plot: Plot, title: str) -> Picture:
    places = {metric: float(place) for metric, place in plot.metrics.items()}
    names = _chosen(result, plot)
    points: dict[str, list[tuple[float, float]]] = {}
    spread: dict[str, list[tuple[float, float]]] = {}
    for name in names:
        row = result.measured.get(name, {})
        there = [(m, value) for m in places if (value := row.get(m)) is not None]
        points[name] = [(places[metric], value) for metric, value in there]
        spread[name] = [(row.get(f"{m}_sd") or 0.0,) * 2 for m, _ in there]
    crosses = {
        name: [
            (place, value)
            for (metric, place) in places.items()
            if (value := result.paper.get(name, {}).get(metric)) is not None
        ]
        for name in names
    }
    return charts.lines(
        title,
        points,
        x=plot.x,
        y=plot.y,
        has_dots=True,
        is_log=plot.is_log,
        spread=spread,
        crosses=crosses,
        crosses_mean="the paper",
    )


def _boxes(result: Result, plot: Plot, title: str) -> Picture:
    five = {
        name: [
            [result.measured.get(name, {}).get(pattern.format(word)) for word in QUANTILES]
            for pattern in plot.metrics
        ]
        for name in _chosen(result, plot)
    }
    groups = [str(label) for label in plot.metrics.values()]
    return boxes(title, groups, five, x=plot.x, y=plot.y, is_log=plot.is_log)


def _curves(result: Result, plot: Plot, title: str) -> Picture:
    curves = {
        label: [(float(point[0]), float(point[1])) for point in points]
        for label, points in result.series.get(plot.source, {}).items()
    }
    return charts.lines(title, curves, x=plot.x, y=plot.y, is_log=plot.is_log)


def _timeline(result: Result, plot: Plot, title: str) -> Picture:
    """The parts below each other, each with its name at its first row."""
    names: list[str] = []
    held: list[tuple[int, float, float, int, str]] = []
    for label, bars in result.series.get(plot.source, {}).items():
        top = len(names)
        names += [label, *[""] * (1 + max((int(bar[0]) for bar in bars), default=0))]
        held += [(top + int(row), start, end, int(job), "") for row, start, end, job in bars]
    return rows.timeline(title, names, held, x=plot.x)


_DRAW: dict[str, Callable[[Result, Plot, str], Picture]] = {
    "bars": _bars,
    "lines": _lines,
    "boxes": _boxes,
    "curves": _curves,
    "timeline": _timeline,
}
