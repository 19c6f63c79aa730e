"""docs/reproduction.md, made of the results of the runs and of nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from papers.experiments import Figures, Result, experiments
from papers.reproduction.checks import Check, figures_of, number, with_spread
from papers.reproduction.claims import NO_RESULT, NOT_RUN, ExperimentRun, Paper, Row, Sweep
from papers.reproduction.rule import DIRECTION, NOT, PARTLY, REPRODUCED, RULE
from papers.reproduction.running import needed, stored

_VERDICTS = (REPRODUCED, PARTLY, DIRECTION, NOT, NOT_RUN, NO_RESULT)
#: Checks of a row that are shown, beside those that fail.
MOST = 8
_HEAD = f"""# What of the papers is reproduced

`make papers` makes this page, its plots and its results (papers/results/reproduction); nothing here
is written by hand. Each row is a table, a figure or a sentence of a paper: what is printed there,
what its command gives here (± the standard deviation over the seeds), and the verdict. The rule
for verdicts was written down before it was applied. It changed 56 of the 75 that there were, all 18
*reproduced* among them; CHANGELOG.md lists them.

{RULE}

How to read it:

- *not run*: nothing here repeats it, and the row says why; *no result*: a drawing, an example or a
  configuration, or what another row judges.
- A figure is a policy and a metric of the command's `--json`; in brackets what it is compared with,
  where that is another figure of ours. ✗ marks what does not hold.
- Of many checks in a row the page shows those that fail and some of those that hold.
- [experiments.md](experiments.md) describes the experiments and says how a row is added."""
_CORRECTED = "`topo-aware` is [a corrected formula](policies/topo-aware.md#utility)"


def page(papers: Sequence[Paper], folder: Path, pictures: str = "") -> str:
    """The whole page by the results in the folder.

    Links to pictures begin with `pictures`, or else with the folder's name.
    """
    kept = {run.name: stored(folder, run) for run in needed(papers)}
    results = {name: result for name, result in kept.items() if result is not None}
    parts = [_HEAD, _totals(papers, results)]
    for paper in (one for one in papers if one.rows):
        parts += [f"## {paper.title}", _rows(paper, results), *_claims(paper, results)]
        parts += [text for sweep in paper.sweeps if (text := _sweep(sweep, results))]
        parts += _plots(paper, folder, pictures or folder.name)
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _measured(results: Mapping[str, Result], run: ExperimentRun | None) -> Figures | None:
    return results[run.name].measured if run is not None and run.name in results else None


def _totals(papers: Sequence[Paper], results: Mapping[str, Result]) -> str:
    rows = []
    for paper in papers:
        verdicts = [row.verdict(_measured(results, row.run)) for row in paper.rows]
        rows.append([paper.title, *(str(verdicts.count(word)) for word in _VERDICTS)])
    sums = [str(sum(int(row[at]) for row in rows)) for at in range(1, len(_VERDICTS) + 1)]
    return _table(["paper", *_VERDICTS], [*rows, ["all", *sums]])


def _rows(paper: Paper, results: Mapping[str, Result]) -> str:
    head = ["where", "the paper", "figure: paper; here", "verdict", "command"]
    return _table(head, (_cells(row, results) for row in paper.rows))


def _cells(row: Row, results: Mapping[str, Result]) -> list[str]:
    measured = _measured(results, row.run)
    verdict = row.verdict(measured)
    because = "; ".join([*filter(None, [row.because]), *[_CORRECTED] * row.has_corrected_formula])
    if row.run is not None and measured is None:
        minutes = experiments[row.run.experiment].minutes
        because = f"its command was not run for this page; it takes about {minutes:g} minutes"
    stated = verdict + (f": {because}" if because else "")
    figures = "<br>".join(_compared(row, measured)) if measured is not None else ""
    command = f"`{row.run.command}`" if row.run is not None else ""
    return [row.at, row.says, figures, stated, command]


def _compared(row: Row, measured: Figures) -> list[str]:
    """Each check with its figures; of many those that fail and the first of the others."""
    failed = [check for check in row.checks if not check.holds(measured)]
    held = [check for check in row.checks if check.holds(measured)]
    left = max(0, MOST - len(failed)) if len(row.checks) > MOST else len(held)
    shown = failed + held[:left]
    lines = [_line(check, measured) for check in row.checks if check in shown]
    return lines + ([f"{len(held) - left} more hold"] if len(held) > left else [])


def _line(check: Check, measured: Figures) -> str:
    ours = with_spread(measured, check.policy, check.metric)
    if check.over is not None:
        ours = number(check.value(measured))
    elif isinstance(check.to, tuple):
        ours += f" ({with_spread(measured, *check.to)})"
    mark = "" if check.holds(measured) else " ✗"
    return f"{check.name()}: {check.expected()}; {ours}{mark}"


def _claims(paper: Paper, results: Mapping[str, Result]) -> list[str]:
    lines = []
    for claim in paper.claims:
        measured = _measured(results, claim.run)
        if measured is not None:
            lines.append(f"- `{claim.run.command}`: {claim.stated(measured)}")
    return ["\n".join(["What is claimed:\n", *lines])] if lines else []


def _sweep(sweep: Sweep, results: Mapping[str, Result]) -> str:
    there = {word: run for word, run in sweep.runs.items() if run.name in results}
    if not there:
        return ""
    head = [sweep.option, *(f"{policy}, `{metric}`" for policy, metric in sweep.figures)]
    rows = [
        [f"`{word}`", *(with_spread(results[run.name].measured, *one) for one in sweep.figures)]
        for word, run in there.items()
    ]
    command = f"`gputopo experiment {sweep.experiment} --sweep {sweep.option}`"
    return f"What depends on `--{sweep.option}`, which is not printed ({command}):\n\n" + _table(
        head, rows
    )


def _plots(paper: Paper, folder: Path, pictures: str) -> list[str]:
    lines = []
    for experiment, plots in paper.plots.items():
        for plot in plots:
            name = f"{experiment}-{plot.name}.svg"
            if (folder / name).is_file():
                lines.append(f"![{plot.title}]({pictures}/{name})")
    return lines


def figures_claimed(papers: Sequence[Paper], experiment: str) -> list[tuple[str, str]]:
    """The figures that the rows and the claim of an experiment look at."""
    checks: list[Check] = []
    for paper in papers:
        declared = [(row.run, row.checks) for row in paper.rows]
        for run, some in (*declared, *((claim.run, claim.checks) for claim in paper.claims)):
            checks += some if run is not None and run.experiment == experiment else ()
    return figures_of(checks)
