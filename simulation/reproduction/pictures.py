"""Plots like the papers' figures, of an experiment's result, as SVG: needs matplotlib."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gres_topology.drawing import figure
from simulation.experiments import Result

QUANTILES = ("min", "p25", "p50", "p75", "max")


@dataclass(frozen=True, slots=True)
class Picture:
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


def svg(result: Result, pictures: Sequence[Picture]) -> str:
    """All pictures below each other. TopologyError without matplotlib."""
    heights = [_height(result, picture) for picture in pictures]
    with figure(7.5, sum(heights), is_constrained=True, font_size=9) as drawn:
        import matplotlib

        grid = drawn.subplots(len(pictures), 1, squeeze=False, height_ratios=heights)
        for axes, picture in zip(grid[:, 0], pictures, strict=True):
            _DRAW[picture.kind](axes, result, picture)
            axes.set_title(f"{picture.title}{_seeds(result)}", fontsize=9, parse_math=False)
            axes.set_xlabel(picture.x)
            axes.set_ylabel(picture.y)
        text = io.StringIO()
        with matplotlib.rc_context({"svg.fonttype": "none"}):
            drawn.savefig(text, format="svg", metadata={"Date": None})
    # The editor's habit of blanks at the ends of lines is nobody's.
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def _height(result: Result, picture: Picture) -> float:
    if picture.kind != "timeline":
        return 3.2
    parts = result.series.get(picture.source, {}).values()
    return 1.2 + 0.12 * sum(1 + max((int(bar[0]) for bar in bars), default=0) for bars in parts)


def _seeds(result: Result) -> str:
    if not result.seeds:
        return ""
    found = ", ".join(map(str, result.seeds))
    if len(result.seeds) > 3:
        found = f"{result.seeds[0]} to {result.seeds[-1]}, {len(result.seeds)} in all"
    return f" (seeds {found})" if len(result.seeds) > 1 else f" (seed {found})"


def _chosen(result: Result, picture: Picture) -> list[str]:
    wanted = result.measured if picture.policies is None else picture.policies
    return [name for name in wanted if any(_has(result, name, m) for m in picture.metrics)]


def _has(result: Result, policy: str, metric: str) -> bool:
    return result.measured.get(policy, {}).get(metric.replace("{}", "p50")) is not None


def _values(result: Result, policy: str, metrics: Sequence[str]) -> tuple[list[float], list[float]]:
    """Figures (not a number where there is none) and their standard deviations."""
    row = result.measured.get(policy, {})
    nothing = float("nan")
    found = [value if (value := row.get(metric)) is not None else nothing for metric in metrics]
    return found, [row.get(f"{metric}_sd") or 0.0 for metric in metrics]


def _papers(
    axes: Any, result: Result, policy: str, places: Mapping[str, float], said: bool
) -> bool:
    """Crosses where the paper prints figures; whether any policy so far has one."""
    row = result.paper.get(policy, {})
    found = {places[metric]: row[metric] for metric in places if row.get(metric) is not None}
    if found:
        label = None if said else "the paper"
        axes.plot(list(found), list(found.values()), "kx", markersize=7, label=label)
    return said or bool(found)


def _bars(axes: Any, result: Result, picture: Picture) -> None:
    names, metrics = _chosen(result, picture), list(picture.metrics)
    width, said = 0.85 / max(1, len(names)), False
    for at, name in enumerate(names):
        places = {m: group - 0.425 + width * (at + 0.5) for group, m in enumerate(metrics)}
        values, spread = _values(result, name, metrics)
        axes.bar(list(places.values()), values, width * 0.95, label=name,
                 yerr=spread if any(spread) else None, ecolor="#555")  # fmt: skip
        said = _papers(axes, result, name, places, said)
    axes.set_xticks(range(len(metrics)), [str(label) for label in picture.metrics.values()])
    _finish(axes, picture)


def _lines(axes: Any, result: Result, picture: Picture) -> None:
    metrics, said = list(picture.metrics), False
    places = {metric: float(place) for metric, place in picture.metrics.items()}
    for name in _chosen(result, picture):
        values, spread = _values(result, name, metrics)
        axes.errorbar(list(places.values()), values, spread if any(spread) else None, marker="o",
                      markersize=3, linewidth=1.2, capsize=2, label=name)  # fmt: skip
        said = _papers(axes, result, name, places, said)
    _finish(axes, picture)


def _boxes(axes: Any, result: Result, picture: Picture) -> None:
    names, groups = _chosen(result, picture), list(picture.metrics.items())
    width = 0.85 / max(1, len(names))
    for at, name in enumerate(names):
        stats, places = [], []
        for group, (pattern, _) in enumerate(groups):
            five, _ = _values(result, name, [pattern.format(word) for word in QUANTILES])
            stats.append(dict(zip(("whislo", "q1", "med", "q3", "whishi"), five, strict=True)))
            places.append(group - 0.425 + width * (at + 0.5))
        axes.bxp([stat | {"fliers": []} for stat in stats], positions=places, widths=width * 0.8,
                 patch_artist=True, boxprops={"facecolor": f"C{at}"},
                 medianprops={"color": "black"}, manage_ticks=False)  # fmt: skip
        axes.plot([], [], "s", color=f"C{at}", label=name)
    axes.set_xticks(range(len(groups)), [str(label) for _, label in groups])
    _finish(axes, picture)


def _curves(axes: Any, result: Result, picture: Picture) -> None:
    for label, points in result.series.get(picture.source, {}).items():
        axes.plot([point[0] for point in points], [point[1] for point in points], label=label,
                  linewidth=1.2)  # fmt: skip
    _finish(axes, picture)


def _timeline(axes: Any, result: Result, picture: Picture) -> None:
    """The parts below each other, a colour for each job."""
    top, ticks = 0, []
    for label, bars in result.series.get(picture.source, {}).items():
        rows = 1 + max((int(bar[0]) for bar in bars), default=0)
        for row, start, end, job in bars:
            axes.barh(top + row, end - start, left=start, height=0.85, color=f"C{int(job) % 10}",
                      edgecolor="white", linewidth=0.4)  # fmt: skip
        ticks.append((top + (rows - 1) / 2, label))
        axes.axhline(top + rows, color="#ccc", linewidth=0.6)
        top += rows + 1
    axes.set_yticks([at for at, _ in ticks], [label for _, label in ticks], fontsize=7)
    axes.invert_yaxis()


def _finish(axes: Any, picture: Picture) -> None:
    if picture.is_log:
        axes.set_yscale("symlog", linthresh=1)
    else:
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.legend(fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


_DRAW = {
    "bars": _bars,
    "lines": _lines,
    "boxes": _boxes,
    "curves": _curves,
    "timeline": _timeline,
}
