"""Runs what the rows of docs/reproduction.md need, and keeps each result as a file of JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from gres_topology.pictures import write as write_picture
from papers.experiments import Result, experiments
from papers.reproduction.claims import ExperimentRun, Paper
from papers.reproduction.plots import drawn
from simulation.core.steps import each


def needed(papers: Collection[Paper]) -> list[ExperimentRun]:
    """Every run of rows, claims and sweeps once, the shortest first."""
    by_name: dict[str, ExperimentRun] = {}
    for paper in papers:
        runs = [row.run for row in paper.rows if row.run] + [one.run for one in paper.claims]
        for sweep in paper.sweeps:
            runs += sweep.runs.values()
        by_name |= {run.name: run for run in runs}
    return sorted(by_name.values(), key=lambda run: (experiments[run.experiment].minutes, run.name))


def stored(folder: Path, run: ExperimentRun) -> Result | None:
    """What an earlier run with the same options and the default seeds has left, if it has."""
    try:
        kept = json.loads((folder / f"{run.name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    kept.pop("seconds", None)
    result = Result(**{**kept, "seeds": tuple(kept["seeds"]), "notes": tuple(kept["notes"])})
    # An option that came later had its default before.
    options = ExperimentRun(run.experiment, result.options).chosen()
    wanted = (run.chosen(), tuple(experiments[run.experiment].seeds))
    return result if (options, result.seeds) == wanted else None


def run_all(
    runs: Collection[ExperimentRun],
    folder: Path,
    tell: Callable[[str], None],
    *,
    again: bool = False,
) -> None:
    """Make the runs whose results are not in the folder; all of them with `again`.

    `tell` gets a line per run, with the seconds that it took and those since the beginning.
    """
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    kept = set() if again else {run.name for run in runs if stored(folder, run) is not None}
    minutes = [experiments[run.experiment].minutes * (run.name not in kept) for run in runs]
    for run, at in zip(runs, each(range(1, len(runs) + 1), minutes), strict=True):
        place = f"{at}/{len(runs)} {run.name}"
        if run.name in kept:
            tell(f"{place}: there already")
            continue
        started, used = time.monotonic(), time.process_time()
        result = experiments[run.experiment].run(None, **run.options)
        write(folder, run, result, round(time.process_time() - used, 1))
        now = time.monotonic()
        tell(f"{place}: {now - started:.0f} s, {now - began:.0f} s in all")


def write(folder: Path, run: ExperimentRun, result: Result, seconds: float) -> None:
    """Leave a result and the processor's seconds; floats to six digits, a curve on one line."""
    rounded = json.loads(json.dumps(result.to_dict() | {"seconds": seconds}), parse_float=_short)
    curves: dict[str, str] = {}
    for lines in rounded["series"].values():
        for label, points in lines.items():
            lines[label] = f"curve {len(curves)} of {run.name}"
            curves[lines[label]] = json.dumps(points, separators=(",", ":"))
    text = json.dumps(rounded, indent=1)
    for mark, points in curves.items():
        text = text.replace(f'"{mark}"', points)
    (folder / f"{run.name}.json").write_text(text + "\n", encoding="utf-8")


def _short(text: str) -> float:
    return float(f"{float(text):.6g}")


def draw(papers: Collection[Paper], folder: Path) -> Iterator[Path]:
    """Draw each plot of the results that are there."""
    for paper in papers:
        for experiment, plots in paper.plots.items():
            result = stored(folder, _shown(paper, experiment))
            if result is None:
                continue
            for plot in plots:
                path = folder / f"{experiment}-{plot.name}.svg"
                write_picture(drawn(result, plot), path)
                yield path


def _shown(paper: Paper, experiment: str) -> ExperimentRun:
    """The run that a paper's plots of an experiment are of: the first that its rows name."""
    runs = [row.run for row in paper.rows if row.run and row.run.experiment == experiment]
    return runs[0] if runs else ExperimentRun(experiment)
