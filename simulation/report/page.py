"""The report as one HTML page that needs nothing else: the table and the pictures inline."""

from __future__ import annotations

from html import escape

from simulation.report import plots
from simulation.report.output import Report, left_out, table
from simulation.traces import Trace

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; color: #222 }
table { border-collapse: collapse; font-size: 13px }
th, td { padding: .3em .7em; text-align: right }
th:first-child, td:first-child { text-align: left }
tr:nth-child(even) { background: #f3f3f3 }
thead th { border-bottom: 1px solid #888; vertical-align: bottom }
svg { max-width: 100%; height: auto }
"""
_HEAD = "<!doctype html><html lang=en><meta charset=utf-8>"


class Html(str):
    """Text that is HTML already. `tag` escapes every other text that it is given."""

    __slots__ = ()


def tag(name: str, *inside: str) -> Html:
    """An element with these texts and elements inside."""
    parts = (part if isinstance(part, Html) else escape(part) for part in inside)
    return Html(f"<{name}>{''.join(parts)}</{name}>")


def to_html(report: Report) -> str:
    """The page."""
    runs, cluster, trace = report.runs, report.cluster, report.trace
    head, *rows = table(runs, cluster)
    chosen = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in report.facts.items())
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    parts = [
        Html(_HEAD) + tag("title", trace.source),
        tag("style", Html(_STYLE)) + tag("h1", "What each policy would have done"),
        tag("p", f"{trace.source} ({trace.format}): {len(trace.jobs)} jobs on {len(cluster)}"
                 f" nodes, {report.gpus} GPUs. {chosen}."),
        tag("table", tag("thead", tag("tr", *(tag("th", cell) for cell in head))),
            tag("tbody", *body)),
        _left_out(trace),
    ]  # fmt: skip
    if not plots.available():
        return "\n".join([*parts, tag("p", "No pictures: matplotlib is not installed.")])
    parts += [plots.waits(runs), plots.slowdowns(runs), plots.utilisation(runs)]
    parts += [plots.timeline(run, cluster, legend=len(trace.jobs) <= 50) for run in runs]
    return "\n".join(parts)


def _left_out(trace: Trace) -> str:
    lines = tag("ul", *(tag("li", line) for line in left_out(trace)))
    named = "\n".join(f"{row.where}: {row.reason}" for row in trace.rejected)
    return lines + (tag("details", tag("summary", "The rows"), tag("pre", named)) if named else "")
