"""Writes docs/proof.md of what was run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from simulation.experiments.proof.bounds import LEAST, ONE_POOL, TOLD
from simulation.experiments.proof.cells import TRACES
from simulation.experiments.proof.judging import (
    OURS,
    PRIMARY,
    SECONDARY,
    Cell,
    Row,
    Verdict,
    verdicts,
)
from simulation.experiments.proof.runs import BOUNDS, FIRST, FRESH, WERE_BEHIND, Name, Round
from simulation.report.metrics import quantile

WORDS = ("worse", "open", "not worse", "better")


def _is_judged(name: Name) -> bool:
    return name[2] == "drawn"


def _in_order(given: Round) -> list[Name]:
    """The cells as they are shown: trace by trace, those with other limits last."""
    order = [*TRACES]

    def place(name: Name) -> tuple[bool, int, int]:
        return not _is_judged(name), order.index(name[0]), name[1]

    return sorted(given.cells, key=place)


def page(folder: Path) -> str:
    """The whole page."""
    found = {name: FIRST.stored(folder, name) for name in _in_order(FIRST)}
    whole = {name: cell for name, cell in found.items() if {OURS, "stock"} <= cell.keys()}
    judged = {name: cell for name, cell in whole.items() if _is_judged(name)}
    comparisons = sum(map(_is_judged, FIRST.cells)) * len(PRIMARY)
    said = {name: verdicts(cell, comparisons) for name, cell in judged.items()}
    again = Again({name: FRESH.stored(folder, name) for name in _in_order(FRESH)}, said)
    least = {name: BOUNDS.stored(folder, name) for name in _in_order(BOUNDS)}
    parts = [_HEAD, *_summary(said), *again.in_short(), *_room_in_short(said, least),
             _HOW, *_missing(found), *_scores(judged, comparisons), *again.section(),
             *_bounds(said, least), *_judged(said), *_tables(whole)]  # fmt: skip
    return "\n".join(parts) + "\n"


_HEAD = f"""# {OURS} against every other policy

See where `{OURS}` is behind the best of the others, trace by trace, by how much, and how much
anybody could gain there.
"""

_HOW = """## How it is judged

A cell is a trace at a load, run with ten seeds. In each of its four figures we stand against the
*best other*: the policy with the best mean in that figure of that cell, stock Slurm included. What
is judged, the margins and the correction for many comparisons were written down before the first
run: [proof-plan.md](proof-plan.md). `gputopo experiment proof --out docs` makes this page and the
results beside it (docs/proof); nothing here is written by hand.
"""


def _summary(said: dict[Name, list[Verdict]]) -> Iterator[str]:
    counts = Counter(one.word for each in said.values() for one in each)
    words = ", ".join(f"{counts[word]} {word}" for word in WORDS)
    yield f"Of {sum(counts.values())} comparisons in {len(said)} cells: {words}."
    every = [(name, one) for name, each in said.items() for one in each]
    worse = [pair for pair in every if pair[1].word == "worse"]
    likely = [pair for pair in every if pair[1].word == "open" and pair[1].is_behind]
    if worse:
        yield f"\n**`{OURS}` loses** these, beyond margin and interval:\n"
        yield from map(_stands, worse)
    else:
        yield f"`{OURS}` is worse beyond margin and interval in none."
    if likely:
        yield (
            "\n**Behind on average by more than the margin**, which ten resamplings cannot tell"
            f" from chance, is `{OURS}` in these {len(likely)}:\n"
        )
        yield from map(_stands, likely)
    yield ""


def _stands(pair: tuple[Name, Verdict]) -> str:
    name, one = pair
    return (
        f"- {name[0]} at {name[1]} %, {PRIMARY[one.metric].label}:"
        f" {_figure(one.metric, one.ours_value)}, `{one.other}`"
        f" {_figure(one.metric, one.other_value)}"
    )


def _missing(found: dict[Name, Cell]) -> Iterator[str]:
    lacking = [name for name, cell in found.items() if len(cell) < len(FIRST.policies)]
    if lacking:
        names = ", ".join("-".join(map(str, name)) for name in lacking)
        yield f"Not run, or not with every policy: {names}.\n"


def _scores(judged: Mapping[Name, Cell], comparisons: int) -> Iterator[str]:
    """Each policy in the place of ours, the nearest to never being beaten first."""
    yield "## Each policy against the best of the others\n"
    yield (
        "The same judgement with another policy in the place of ours. *behind*: worse on average"
        " by more than the margin, certain or not. *in margins*: by how many margins it is behind"
        " in the mean of all comparisons, 0 where it is the best. Policies that place alike here"
        " (`genie` as `mapa`, `fcfs` as `first-fit`) are each other's best other, which favours"
        " them.\n"
    )
    yield "| policy | behind | in margins | worse | open | not worse | better |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    rows = []
    for policy in FIRST.policies:
        every = [one for cell in judged.values() if policy in cell
                 for one in verdicts(cell, comparisons, policy)]  # fmt: skip
        if every:
            counts = Counter(one.word for one in every)
            behind = sum(one.is_behind for one in every)
            margins = fmean(max(0.0, one.behind) / one.margin for one in every)
            numbers = " | ".join(str(counts[word]) for word in WORDS)
            rows.append((behind, margins, f"| `{policy}` | {behind} | {margins:.2f} | {numbers} |"))
    yield from (row for _, _, row in sorted(rows))
    yield ""


def _judged(said: dict[Name, list[Verdict]]) -> Iterator[str]:
    yield "## Verdicts\n"
    yield (
        "*behind*: by how much it is worse on average over ten resamplings, with the simultaneous"
        " interval; below 0 it is ahead. *open*: the interval allows no verdict; in brackets, how"
        " many resamplings it takes until the interval is no wider than the margin to each side,"
        " if differences scatter as in these ten."
    )
    unsure = [one.needed for each in said.values() for one in each if one.word == "open"]
    if unsure:
        many = [sum(one > limit for one in unsure) for limit in (100, 1000)]
        yield (
            f"Of the {len(unsure)} open ones {many[0]} would need more than 100, and {many[1]} more"
            " than 1,000."
        )
    yield "\n| trace | load | figure | ours | best other | behind | margin | verdict |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, each in said.items():
        for one in each:
            yield f"| {_of(name, one)} | {_compared(one)} | {_word(one)} |"
    yield ""


def _of(name: Name, one: Verdict) -> str:
    return f"{name[0]} | {name[1]} % | {PRIMARY[one.metric].label}"


def _compared(one: Verdict) -> str:
    ours, other, behind, half, margin = (
        _figure(one.metric, value)
        for value in (one.ours_value, one.other_value, one.behind, one.half, one.margin)
    )
    return f"{ours} | {other} `{one.other}` | {behind} ± {half} | {margin}"


def _word(one: Verdict) -> str:
    if one.word == "open":
        return f"open ({one.needed:,})"
    return f"**{one.word}**" if one.word == "worse" else one.word


class Again:
    """The nine comparisons that seemed lost on the first seeds, on others."""

    def __init__(self, cells: Mapping[Name, Cell], first: Mapping[Name, list[Verdict]]) -> None:
        cells = {name: cell for name, cell in cells.items() if OURS in cell and len(cell) > 1}
        asked = set(WERE_BEHIND)
        self._more = len(FRESH.cells) * len(PRIMARY) - len(asked)
        self._cells, self._first, self._is_whole = cells, first, len(cells) == len(FRESH.cells)
        self._asked = [
            (name, one) for name, cell in cells.items() for one in verdicts(cell, len(asked))
            if (*name[:2], one.metric) in asked
        ]  # fmt: skip
        self._others = [
            (name, one) for name, cell in cells.items()
            for one in verdicts(cell, self._more) if (*name[:2], one.metric) not in asked
        ]  # fmt: skip

    def in_short(self) -> Iterator[str]:
        """What came of them, for the top of the page."""
        if not self._asked:
            return
        yield (
            f"**Fresh seeds**: were these chance? On {len(FRESH.seeds)} new seeds"
            f" {sum(one.is_behind for _, one in self._asked)} of the {len(self._asked)} are behind"
            f" on average by more than the margin: {_counted(self._asked)}. In the same cells'"
            f" {len(self._others)} other figures: {_counted(self._others)}"
            " ([below](#fresh-seeds)). All that are behind on average by more than the margin"
            " there:\n"
        )
        seems = [pair for pair in (*self._asked, *self._others) if pair[1].is_behind]
        yield from map(_stands, seems) if seems else ["- none"]
        yield ""

    def section(self) -> Iterator[str]:
        """All of it."""
        if not self._asked:
            return
        yield "## Fresh seeds\n"
        yield (
            "Were the comparisons in which it was behind on the first ten seeds chance? Seeds"
            f" {FRESH.seeds[0]} to {FRESH.seeds[-1]}, fixed before they were run"
            " ([proof-plan.md](proof-plan.md#fresh-seeds)). *first*: by how much it was behind on"
            " the first ten, and whom; *now*: behind the same one, below 0 ahead: nobody was chosen"
            " after the runs there. The verdict is against the best on these seeds, with an"
            f" interval for {len(WERE_BEHIND)} comparisons; *open*, in brackets: as"
            " [below](#verdicts)."
        )
        if not self._is_whole:
            yield "\nNot all of it has been run."
        columns = ("trace", "load", "figure", "first", "now", "ours", "best other", "behind",
                   "margin", "verdict")  # fmt: skip
        yield f"\n| {' | '.join(columns)} |"
        yield f"|{' --- |' * len(columns)}"
        for name, one in self._asked:
            first = self._before(name, one)
            yield f"| {_of(name, one)} | {first} | {_compared(one)} | {_word(one)} |"
        yield (
            f"\nThe other {len(self._others)} figures of these cells, with an interval for"
            f" {self._more}: {_counted(self._others)}.\n"
        )
        yield "| trace | load | figure | ours | best other | behind | margin | verdict |"
        yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
        for name, one in self._others:
            yield f"| {_of(name, one)} | {_compared(one)} | {_word(one)} |"
        yield ""

    def _before(self, name: Name, one: Verdict) -> str:
        """How it stood to the best other of the first seeds, then and now."""
        found = [said for said in self._first.get(name, ()) if said.metric == one.metric]
        if not found:
            return " | "
        [was], metric = found, one.metric
        then = f"{_figure(metric, was.behind)} `{was.other}`"
        rows = self._cells[name].get(was.other)
        if rows is None:
            return f"{then} | "
        sign = 1 if PRIMARY[metric].is_cost else -1
        now = sign * (_mean(self._cells[name][OURS], metric) - _mean(rows, metric))
        return f"{then} | {_figure(metric, now)}"


def _counted(pairs: Sequence[tuple[Name, Verdict]]) -> str:
    counts = Counter(one.word for _, one in pairs)
    return ", ".join(f"{counts[word]} {word}" for word in WORDS)


def _bound(cell: Cell, kind: str, metric: str) -> float | None:
    rows = cell.get(kind, ())
    return _mean(rows, metric) if rows and metric in rows[0] else None


def _room_in_short(said: Mapping[Name, list[Verdict]], least: Mapping[Name, Cell]) -> Iterator[str]:
    """How much of the mean wait could go, in the middle cell."""
    words = []
    for kind, what in ((ONE_POOL, "if every GPU could be had from one pool with ideal links"),
                       (TOLD, f"if `{OURS}` were told true run times")):  # fmt: skip
        parts = [
            1 - bound / one.ours_value
            for name, each in said.items() for one in each
            if one.metric == "wait_mean_s" and one.ours_value > 0
            and (bound := _bound(least.get(name, {}), kind, one.metric)) is not None
        ]  # fmt: skip
        if parts:
            low, middle, high = (100 * quantile(parts, q) for q in (0, 0.5, 1))
            words.append(f"{what}, by {middle:.0f} % in the median cell ({low:.0f} to {high:.0f})")
    if words:
        yield (
            f"**What is left to gain**: the mean wait would be shorter {'; '.join(words)}"
            " ([below](#bounds)).\n"
        )


def _bounds(said: Mapping[Name, list[Verdict]], least: Mapping[Name, Cell]) -> Iterator[str]:
    if not any(least.values()):
        return
    yield "## Bounds\n"
    yield _ABOUT_BOUNDS
    yield "| trace | load | figure | ours | best other | told | one pool | least |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, each in said.items():
        for one in each:
            kept = [
                _bound(least.get(name, {}), kind, one.metric) for kind in (TOLD, ONE_POOL, LEAST)
            ]
            if one.metric in IDEAL:
                kept[1:] = [None, IDEAL[one.metric]]
            figures = [
                "" if value is None else _figure(one.metric, value)
                for value in (one.ours_value, one.other_value, *kept)
            ]
            yield f"| {_of(name, one)} | {' | '.join(figures)} |"
    yield ""


#: What no policy passes by definition: a share of the best set on an empty node, no job too slow.
IDEAL = {"bandwidth_share": 1.0, "slo": 0.0}

_ABOUT_BOUNDS = f"""What could anybody reach? Means over the same ten resamplings.

- *told*: `{OURS}` with the true run times of all jobs that wait and run, instead of guesses from
  limits; Slurm's backfill plans with limits still. What it is then behind is not for lack of them.
- *one pool*: the same queue under the same Slurm, where every GPU is a node of its own with ideal
  links (CPUs and memory left out): nothing waits for GPUs that are in the wrong place. No strict
  bound: a job that ends sooner can make others start later under backfill.
- *least*: strict. No schedule has a smaller mean wait, in any order, not Slurm's, with all of the
  future known: each job takes its best time on one pool, whose capacity is relaxed to prices of GPU
  time. Of the share of the ideal bandwidth and of SLO violations it is 1 and 0 by definition, and
  reached where a job may wait for an empty node. Of the p99 wait none but 0 is known.

With all plans tried for six jobs on one node: `gputopo experiment horizon-exhaustive`
([horizon.md](policies/horizon.md#how-near-to-the-best-plan)).
"""


def _tables(whole: dict[Name, Cell]) -> Iterator[str]:
    yield "## All figures\n"
    yield "Means over ten resamplings.\n"
    metrics = {**{key: one.label for key, one in PRIMARY.items()}, **SECONDARY}
    for (trace, load, limits), cell in whole.items():
        yield f"### {trace}, {load} %{'' if limits == 'drawn' else f', limits {limits}'}\n"
        yield f"| policy | {' | '.join(metrics.values())} |"
        yield f"| --- |{' --- |' * len(metrics)}"
        for policy, rows in cell.items():
            means = [_figure(key, _mean(rows, key)) for key in metrics]
            yield f"| `{policy}` | {' | '.join(means)} |"
        yield ""


def _mean(rows: Sequence[Row], key: str) -> float:
    return fmean(row[key] for row in rows)


def _figure(metric: str, value: float) -> str:
    if metric.endswith("_s"):
        return f"{value:,.0f} s" if abs(value) >= 100 else f"{value:.1f} s"
    return f"{value:.2f}" if metric == "bounded_slowdown" else f"{value:.4f}"
