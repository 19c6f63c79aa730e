"""Writes docs/proof.md of what was run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

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
from simulation.experiments.proof.runs import FIRST, FRESH, WERE_BEHIND, Name, Round

WORDS = ("worse", "open", "not worse", "better")


def _is_judged(name: Name) -> bool:
    return name[2] == "drawn"


def _in_order(given: Round) -> list[Name]:
    """The cells as they are shown: trace by trace, those with other limits last."""
    order = [*TRACES]
    return sorted(given.cells,
                  key=lambda name: (not _is_judged(name), order.index(name[0]), name[1]))  # fmt: skip


def page(folder: Path) -> str:
    """The whole page."""
    found = {name: FIRST.stored(folder, name) for name in _in_order(FIRST)}
    whole = {name: cell for name, cell in found.items() if {OURS, "stock"} <= cell.keys()}
    judged = {name: cell for name, cell in whole.items() if _is_judged(name)}
    comparisons = sum(map(_is_judged, FIRST.cells)) * len(PRIMARY)
    said = {name: verdicts(cell, comparisons) for name, cell in judged.items()}
    parts = [_HEAD, *_summary(said), *_missing(found), *_scores(judged, comparisons),
             *_judged(said), *_tables(whole)]  # fmt: skip
    return "\n".join(parts) + "\n"


_HEAD = f"""# {OURS} against every other policy

See where `{OURS}` is behind the best of the others, trace by trace, and by how much.

`gputopo experiment proof --out docs` makes this page and the results beside it (docs/proof);
nothing here is written by hand. What is judged, the margins and the correction were written down
before the first run: [proof-plan.md](proof-plan.md). The *best other* is the policy with the best
mean in that figure of that cell, stock Slurm included.
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
        " interval; below 0 it is ahead. *open*: the interval allows no verdict.\n"
    )
    yield "| trace | load | figure | ours | best other | behind | margin | verdict |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for (trace, load, _), each in said.items():
        for one in each:
            word = f"**{one.word}**" if one.word == "worse" else one.word
            number = [_figure(one.metric, value)
                      for value in (one.ours_value, one.other_value, one.behind, one.half,
                                    one.margin)]  # fmt: skip
            yield (
                f"| {trace} | {load} % | {PRIMARY[one.metric].label} | {number[0]} |"
                f" {number[1]} `{one.other}` | {number[2]} ± {number[3]} | {number[4]} | {word} |"
            )
    yield ""


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
