"""Writes docs/harm.md of what was run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from papers.experiments.harm.judging import (
    ERROR,
    MARGINS,
    ON,
    OURS,
    SURE,
    WITHOUT_US,
    Cell,
    Row,
    Verdict,
    verdicts,
)
from papers.experiments.harm.runs import FIRST_JUDGED, MOST, TUNING, Results
from papers.experiments.harm.traces import TRACES, WORKLOADS

LOGS = [name for name, trace in TRACES.items() if trace.seeds]
LABELS = {"wait_s": "mean wait", "wait_p95_s": "p95 wait"}
SECONDARY = {
    "turnaround_s": "submit to end", "wide_wait_s": "wait of 4 GPUs or more", "unfair": "unfair",
    "in_vain": "waited in vain",
}  # fmt: skip


def page(results: Results) -> str:
    """The whole page."""
    judged = results.whole("judged")
    said = verdicts(judged)
    parts = [_HEAD, *_in_short(said), *_how(results, judged), *_table(said), *_secondary(judged)]
    return "\n".join(parts) + "\n"


_HEAD = f"""# Does `{OURS}` do harm?

See on which workloads jobs wait longer under `{OURS}` than without it, and how sure that is.
"""


def _in_short(said: Sequence[Verdict]) -> Iterator[str]:
    """One sentence for each kind of workload, by the mean wait."""
    if not said:
        yield "Nothing has been judged yet.\n"
        return
    groups: dict[str, list[str]] = {"gains": [], "ties": [], "not": []}
    for name in dict.fromkeys(one.workload for one in said):
        words = {one.word for one in said if one.workload == name and one.figure == "wait_s"}
        kind = "not" if words & {"worse", "open"} else "gains" if words == {"better"} else "ties"
        groups[kind].append(name)
    yield (
        f"By the mean wait, `{OURS}` gains on every other policy on {_listed(groups['gains'])};"
        f" it gains on some and ties with the rest on {_listed(groups['ties'])}; do not take it"
        " untried, as it is worse than some policy or not known to be as good as each, for"
        f" {_listed(groups['not'])}.\n"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _how(results: Results, judged: Mapping[str, Cell]) -> Iterator[str]:
    yield "## How it is judged\n"
    margins = " and ".join(f"{100 * part:.0f} % in {LABELS[key]}" for key, part in MARGINS.items())
    yield (
        "Each workload of `papers/experiments/harm` runs under each policy on the"
        " same jobs, seed by seed. The claim is, of each other policy: not worse than it by more"
        f" than {margins}. All claims together are wrong with {100 * ERROR:.0f} % at most (Holm);"
        " all intervals hold together with as much certainty (Bonferroni). How many seeds a"
        f" workload has was reckoned from seeds {TUNING[0]} to {TUNING[-1]}, so that the claim on"
        f" the mean wait beside {' and '.join(WITHOUT_US)} is made with {100 * SURE:.0f} % where"
        f" ours waits as long as theirs, or as much less as was seen there; {MOST} at most. How"
        f" often seeds from {FIRST_JUDGED} on were judged, each time with other code:"
        f" {results.times_judged()}. A whole log ({', '.join(LOGS)}) runs with few seeds, each of"
        " which shifts its jobs by up to half an hour.\n"
    )
    lacking = [name for name in WORKLOADS if name not in judged]
    if lacking:
        yield f"Not run yet: {', '.join(lacking)}.\n"
    fewer = [
        f"{name} ({len(cell[OURS])} of {len(results.seeds('judged', name))})"
        for name, cell in judged.items()
        if len(cell[OURS]) < len(results.seeds("judged", name))
    ]
    if fewer:
        yield f"With fewer seeds than that: {', '.join(fewer)}.\n"


def _table(said: Sequence[Verdict]) -> Iterator[str]:
    yield "## Verdicts\n"
    yield (
        f"*difference*: of `{OURS}`'s figure from the other's, with its interval. *power*: how"
        " likely the claim was, had both been alike. *better*, *worse*: the whole interval lies"
        " there; *not worse*: the claim holds; *open*: neither, and a difference of the part in"
        f" brackets from the margin would have been seen with {100 * SURE:.0f} %.\n"
    )
    yield "| workload | figure | against | ours | theirs | difference | seeds | power | verdict |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for one in said:
        told = one.beside
        difference = f"{100 * (told.ratio - 1):+.1f} ± {100 * told.half:.1f} %"
        word = f"open ({100 * one.sees:.0f} %)" if one.word == "open" else one.word
        word = f"**{word}**" if one.word == "worse" else word
        yield (
            f"| {one.workload} | {LABELS[one.figure]} | {one.other} | {told.ours:,.0f} s |"
            f" {told.theirs:,.0f} s | {difference} | {one.seeds} | {100 * one.power:.0f} % |"
            f" {word} |"
        )
    yield ""


def _secondary(judged: Mapping[str, Cell]) -> Iterator[str]:
    yield "## What else changes\n"
    yield (
        "Means over the seeds; nothing is claimed of them. *unfair*: the mean wait of the user who"
        " waits longest over that of all. *waited in vain*: jobs whose wait for better GPUs ran its"
        " course. *share*: of the ideal bandwidth, of jobs of several GPUs on that machine.\n"
    )
    for name, cell in judged.items():
        machines = [key for key in cell[OURS][0] if key.startswith(ON)]
        yield f"### {name}\n"
        heads = [*SECONDARY.values(), *machines]
        yield f"| policy | {' | '.join(heads)} |"
        yield f"|---|{'---|' * len(heads)}"
        for policy, rows in cell.items():
            cells = [_mean(rows, key) for key in (*SECONDARY, *machines)]
            yield f"| {policy} | {' | '.join(cells)} |"
        yield ""


def _mean(rows: Sequence[Row], key: str) -> str:
    """Over the seeds that have it."""
    values = [row[key] for row in rows if key in row]
    if not values:
        return ""
    mean = fmean(values)
    if key.endswith("_s"):
        return f"{mean:,.0f} s"
    return f"{100 * mean:.2f} %" if key == "in_vain" else f"{mean:.3f}"
