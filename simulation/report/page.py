"""The report as one HTML page that needs nothing else: words first, tables, pictures inline."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import fmean

from gres_topology.pictures import Picture, theme
from simulation.report import plots
from simulation.report.breakdown import MOMENTS, Moment, SizeWait, waits_by_size
from simulation.report.output import Report, beside_the_log, first_columns, left_out, table
from simulation.report.recommendation import recommendation, reference_of
from simulation.report.words import share, time
from simulation.traces import Trace

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #ffffff; --soft: #f1f3f6 }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #f2f2f2; --paper: #16181d; --soft: #242832 }
}
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; padding: 0 1em; max-width: 1000px;
  color: var(--ink); background: var(--paper) }
.advice { font-size: 17px; padding: .8em 1.2em; border-left: 5px solid #0072b2;
  background: var(--soft) }
div { overflow-x: auto }
table { border-collapse: collapse; font-size: 13px }
th, td { padding: .3em .7em; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
tr:nth-child(even) { background: var(--soft) }
thead th { border-bottom: 1px solid #888; vertical-align: bottom }
svg { max-width: 100%; height: auto; display: block; margin: 1em 0 }
"""
_HEAD = "<!doctype html><html lang=en><meta charset=utf-8>"
_VIEW = '<meta name=viewport content="width=device-width">'


class Html(str):
    """Text that is HTML already. `tag` escapes every other text that it is given."""

    __slots__ = ()


def tag(name: str, *inside: str, class_: str = "") -> Html:
    """An element with these texts and elements inside."""
    parts = (part if isinstance(part, Html) else escape(part) for part in inside)
    kind = f' class="{class_}"' if class_ else ""
    return Html(f"<{name}{kind}>{''.join(parts)}</{name}>")


def _folded(heading: str, *inside: Html) -> Html:
    return tag("details", tag("summary", heading), *inside)


def _picture(picture: Picture) -> Html:
    return tag("div", Html(picture.svg(is_inline=True)))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    top = tag("thead", tag("tr", *(tag("th", cell) for cell in head)))
    return tag("div", tag("table", top, tag("tbody", *body)))


def to_html(report: Report, before: Sequence[str] = ()) -> str:
    """The page; `before` are lines that stand above the simulation."""
    runs, cluster, trace = report.runs, report.cluster, report.trace
    chosen = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in report.facts.items())
    # A column per policy: figures of one kind are compared along a line.
    every = table(runs, cluster)
    head, *rows = zip(*every, strict=True)
    _, *first_rows = zip(*first_columns(every, report.facts), strict=True)
    return "\n".join(
        [
            Html(_HEAD) + Html(_VIEW) + tag("title", trace.source),
            tag("style", Html(_STYLE + theme.css())),
            *(tag("p", line) for line in before),
            tag("h1", "What each policy would have done"),
            tag("p", recommendation(runs, cluster, report.facts), class_="advice"),
            tag(
                "p",
                f"{trace.source} ({trace.format}): {len(trace.jobs)} jobs on {len(cluster)}"
                f" nodes, {report.gpus} GPUs. {chosen}.",
            ),
            _table(head, first_rows),
            _folded("All figures", _table(head, rows)),
            tag("p", beside_the_log(report)),
            _left_out(trace),
            *_waits(report),
            *_stranded(report),
            *_bandwidth(report),
            *_slowdowns(report),
            tag("h2", "Use of the nodes"),
            *(_folded(run.policy, _picture(plots.use(run, cluster, report.gpus))) for run in runs),
        ]
    )


def _waits(report: Report) -> list[Html]:
    """Who waits how long, by size."""
    parts = [tag("h2", "Who waits")]
    waits = {run.policy: waits_by_size(run) for run in report.runs}
    if max(one.p95_s for some in waits.values() for one in some.values()) < 1:
        return [
            *parts,
            tag("p", "Of every size 95 of 100 jobs start within a second, under every policy."),
        ]
    first = waits[report.runs[0].policy]
    rows = [
        [size, f"{one.jobs:,}", *(_wait(some[size]) for some in waits.values())]
        for size, one in first.items()
    ]
    said = "Mean wait, and in brackets the wait that 95 of 100 jobs stay below."
    return [
        *parts,
        _picture(plots.waits(report.runs)),
        tag("p", said),
        _table(["size", "jobs", *waits], rows),
    ]


def _wait(one: SizeWait) -> str:
    return f"{time(one.mean_s)} ({time(one.p95_s)})"


def _stranded(report: Report) -> list[Html]:
    """What was free and of no use."""
    picture, moments = plots.stranded(report.runs, report.cluster)
    parts = [tag("h2", "Stranded GPUs"), tag("p", _STRANDED)]
    rows = [[name, *_means(some, report.gpus)] for name, some in moments.items()]
    if any(one.stranded for some in moments.values() for one in some):
        parts.append(_picture(picture))
    else:
        parts.append(tag("p", "No GPU is stranded at any moment looked at, under no policy."))
    return [*parts, _table(["policy", "free", "stranded", "fragmentation"], rows)]


_STRANDED = (
    "A GPU is stranded while it is free, and no job that waits can use what is free on its node;"
    " where none waits, jobs as they mostly run there could not. Fragmentation is the share of the"
    " free GPUs that a job cannot use, on average over the jobs that wait or run. Both are looked"
    f" at {MOMENTS:,} times as long as jobs arrive (until 95 of 100 have ended, where all were"
    " submitted at once)."
)


def _means(moments: Sequence[Moment], gpus: int) -> list[str]:
    free = fmean(one.free for one in moments)
    stranded = fmean(one.stranded for one in moments)
    # Of the free GPUs of all moments, not of each moment alike: few free ones weigh little.
    unusable = sum(one.fragmentation * one.free for one in moments)
    parts = unusable / sum(one.free for one in moments) if free else 0.0
    return [f"{free:,.1f} GPUs", f"{stranded:,.1f} GPUs ({share(stranded / gpus)})", share(parts)]


def _bandwidth(report: Report) -> list[Html]:
    """Who wins and loses bandwidth against what the site has now."""
    names = {run.policy: run for run in report.runs}
    if len(names) < 2:
        return []
    reference = names[reference_of(list(names))]
    parts = [tag("h2", "Bandwidth won and lost by user")]
    for run in report.runs:
        if run is not reference:
            picture, said = plots.users(run, reference, report.cluster)
            parts += [tag("p", said)] + ([_picture(picture)] if picture else [])
    return parts


def _slowdowns(report: Report) -> list[Html]:
    picture = plots.slowdowns(report.runs)
    if picture is not None:
        return [tag("h2", "Slower than on the best GPUs"), _picture(picture)]
    why = (
        ""
        if report.facts.get("communication")
        else (" That is by --communication 0: the log's durations hold wherever a job runs.")
    )
    return [tag("h2", "Slower than on the best GPUs"), tag("p", f"No job, under no policy.{why}")]


def _left_out(trace: Trace) -> str:
    lines = tag("ul", *(tag("li", line) for line in left_out(trace)))
    named = "\n".join(f"{row.where}: {row.reason}" for row in trace.rejected)
    return lines + (tag("details", tag("summary", "The rows"), tag("pre", named)) if named else "")
