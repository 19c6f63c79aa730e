"""`gputopo experiment NAME`: run a paper's experiment, its figures beside ours.

`gputopo experiment all` runs every one, and makes the page of what is reproduced.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_plugin.cli import files
from slurm_plugin.cli.groups import CommandGroup
from slurm_plugin.cli.options import json_option

if TYPE_CHECKING:
    from rich.table import Table

    from papers.experiments import Experiment, Figures, Result

#: Widths of a table's columns where the metrics are the rows.
_FIRST_COLUMN, _COLUMN = 32, 23
#: Characters of a line that goes to a file.
_WIDTH = 180


class Experiments(CommandGroup):
    """One command for each registered experiment, made from its declaration, and `all`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every experiment's name."""
        from papers.experiments import experiments

        return [*_PAGES, *sorted(experiments)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The experiment as a command; None where there is none of that name."""
        from papers.experiments import experiments

        if cmd_name in _PAGES:
            return _PAGES[cmd_name]
        return _command(experiments[cmd_name]) if cmd_name in experiments else None


@click.group(cls=Experiments)
def experiment() -> None:
    """Repeat a paper's experiment, and print its figures beside ours."""


def _ranges(seeds: Iterable[int]) -> Iterator[str]:
    """As `_seeds` reads them: 5000-5199 for two hundred, 1, 2, 3 for three."""
    for _, run in groupby(enumerate(seeds), lambda pair: pair[1] - pair[0]):
        some = [seed for _, seed in run]
        yield from (f"{some[0]}-{some[-1]}",) if len(some) > 3 else map(str, some)


def _seeds(ctx: click.Context, option: click.Parameter, text: str | None) -> list[int] | None:
    """`3`, `1-5` or `1,4,9`."""
    if text is None:
        return None
    try:
        seeds: list[int] = []
        for part in text.split(","):
            first, _, last = part.partition("-")
            seeds += range(int(first), int(last or first) + 1)
    except ValueError:
        seeds = []
    if not seeds:
        raise click.BadParameter(f"{text!r}: expected seeds such as 3, 1-5 or 1,4,9")
    return seeds


def _out(text: str) -> Callable[..., Any]:
    """The option of a command that writes a page."""
    folder = click.Path(file_okay=False, path_type=Path)
    return click.option("--out", type=folder, required=True, help=text)


#: The results of a checkout lie elsewhere than its pages.
_results = click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the results, in place of --out.",
)


@click.command("all")
@_out("Folder of reproduction.md and of reproduction/, its results and plots.")
@_results
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Run this experiment alone; repeat for more. none: make the page.",
)
@click.option("--again", is_flag=True, help="Also what has been run with the same options.")
def run_all(out: Path, results: Path | None, only: tuple[str, ...], again: bool) -> None:
    """Run every experiment, the shortest first, and write what is reproduced.

    Results that are in the folder already are kept: an interrupted run goes on where it was.
    """
    from papers.experiments import experiments
    from papers.reproduction import PAPERS, page, running
    from slurm_plugin.cli.progress import watching

    if unknown := sorted(set(only) - {*experiments, "none"}):
        raise click.BadParameter(f"--only {unknown[0]}: expected one of {', '.join(experiments)}")
    runs = [run for run in running.needed(PAPERS) if not only or run.experiment in only]
    folder = (results or out) / "reproduction"
    with watching("experiments"):
        running.run_all(runs, folder, click.echo, again=again)
    for path in running.draw(PAPERS, folder):
        click.echo(f"wrote {path}")
    pictures = os.path.relpath(folder, out)
    out.mkdir(parents=True, exist_ok=True)
    files.write(out / "reproduction.md", page.page(PAPERS, folder, pictures))


@click.command("harm")
@_out("Folder of harm.md and of harm/, its results.")
@_results
@click.option(
    "--block",
    type=click.Choice(["tuning", "judged", "none"]),
    default="none",
    show_default=True,
    help="Run these seeds first; none: make the page.",
)
@click.option("--only", multiple=True, metavar="WORKLOAD", help="These workloads.")
@click.option("--again", is_flag=True, help="All of horizon anew: one more judgement.")
@click.option("--seeds", type=click.IntRange(2), metavar="N", help="So many at most.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes at once.",
)
def run_harm(
    out: Path,
    results: Path | None,
    block: str,
    only: tuple[str, ...],
    again: bool,
    seeds: int | None,
    jobs: int,
) -> None:
    """Run workloads of many kinds, and write where jobs wait longer under horizon.

    Results that are in the folder already are kept: an interrupted run goes on where it was. The
    tuning block comes first: it says how many seeds are judged.
    """
    from papers.experiments.harm.page import page
    from papers.experiments.harm.runs import Results
    from papers.experiments.harm.traces import WORKLOADS

    if unknown := sorted(set(only) - set(WORKLOADS)):
        raise click.BadParameter(f"{unknown[0]}: expected one of {', '.join(WORKLOADS)}")
    found = Results((results or out) / "harm")
    if block != "none":
        found.run(block, click.echo, only=only, again=again, most=seeds, processes=jobs)
    out.mkdir(parents=True, exist_ok=True)
    files.write(out / "harm.md", page(found))


#: Those that write a page of many runs.
_PAGES = {"all": run_all, "harm": run_harm}


def _command(experiment: Experiment) -> click.Command:
    from papers.experiments.experiment import FILE

    def run(
        as_json: bool,
        plot: Path | None,
        seeds: list[int] | None = None,
        sweep: str | None = None,
        **options: str,
    ) -> None:
        from slurm_plugin.cli.progress import watching

        claimed = partial(_claimed, experiment.name)
        if sweep is not None:
            with watching(experiment.name):
                swept = _swept(experiment, sweep, seeds, options)
            if as_json:
                click.echo(json.dumps(swept.to_dict(), indent=2))
            else:
                _print(swept)
            return
        with watching(experiment.name):
            result = experiment.run(seeds, **options)
        if plot is not None:
            _plot(result, experiment, plot)
        if as_json:
            click.echo(json.dumps(result.to_dict() | {"claimed": claimed(result)}, indent=2))
        else:
            _print(result, claimed(result))

    with_plot = click.option(
        "--plot",
        type=click.Path(path_type=Path),
        metavar="FILE|FOLDER",
        help="Draw its plots: one .svg or .png, or one each.",
    )
    command = click.command(name=experiment.name, help=experiment.summary)(
        with_plot(json_option(run))
    )
    if experiment.seeds:
        default = ",".join(_ranges(experiment.seeds))
        command.params.insert(
            0,
            click.Option(["--seeds"], callback=_seeds, metavar="LIST", help=f"Default: {default}."),
        )
    for name, words in experiment.options.items():
        kind = None if FILE in words else click.Choice(words)
        option = click.Option(
            [f"--{name}"],
            type=kind,
            default=words[0],
            show_default=True,
            metavar="FORM",
            help=f"Which form of it: {', '.join(words)}.",
        )
        command.params.insert(0, option)
    if experiment.options:
        help_ = f"Run it with every form of {' or '.join(experiment.options)}, side by side."
        swept = click.Option(
            ["--sweep"], type=click.Choice([*experiment.options]), metavar="OPTION", help=help_
        )
        command.params.append(swept)
    return command


def _plot(result: Result, experiment: Experiment, target: Path) -> None:
    from gres_topology.pictures import write
    from papers.reproduction import PAPERS
    from papers.reproduction.plots import drawn, together
    from slurm_plugin.cli import Fault

    plots = [one for paper in PAPERS for one in paper.plots.get(experiment.name, ())]
    if not plots:
        raise Fault(f"{experiment.name} has no plot")
    if target.suffix in {".svg", ".png"}:
        drawings = {target: together(result, plots)}
    else:
        drawings = {
            target / f"{experiment.name}-{one.name}.svg": drawn(result, one) for one in plots
        }
    try:
        for path, picture in drawings.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write(picture, path)
            click.echo(f"wrote {path}", err=True)
    except OSError as error:
        raise Fault(f"{target}: {error.strerror}") from None


def _swept(
    experiment: Experiment, option: str, seeds: list[int] | None, options: dict[str, str]
) -> Result:
    """A row for each word of an option, with the figures that the experiment's claims look at."""
    from papers.experiments import Result
    from papers.experiments.experiment import FILE
    from papers.reproduction import PAPERS
    from papers.reproduction.page import figures_claimed
    from simulation.core.steps import each

    figures = figures_claimed(PAPERS, experiment.name)
    rows: dict[str, dict[str, float | None]] = {}
    words = [word for word in experiment.options[option] if word != FILE]
    # A file that is named comes beside the words.
    named = options.get(option.replace("-", "_"), words[0])
    for word in each([*words, *({named} - {*words})]):
        result = experiment.run(seeds, **{**options, option.replace("-", "_"): word})
        row = rows[f"{option} {word}"] = {}
        for policy, metric in figures:
            for name in (metric, f"{metric}_sd"):
                if name in result.measured.get(policy, {}):
                    row[f"{policy}: {name}"] = result.measured[policy][name]
    return Result(f"{experiment.name} by {option}", result.seeds, rows, {}, options=options)


def _claimed(name: str, result: Result) -> list[str]:
    """What is claimed of the experiment, or that these figures do not carry it."""
    from papers.reproduction import PAPERS

    claims = [one for paper in PAPERS for one in paper.claims if one.run.experiment == name]
    of_these_options = [one for one in claims if one.run.chosen() == result.options]
    return [one.stated(result.measured) for one in of_these_options or claims]


def _print(result: Result, claimed: Sequence[str] = ()) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    seeds = " ".join(_ranges(result.seeds)) or "none"
    console.print(f"[bold]{result.experiment}[/bold], seeds {seeds}; (in brackets: the paper)")
    for table in _tables(result, console.width):
        console.print(table)
    for note in result.notes:
        console.print(f"- {note}", markup=False)
    for sentence in claimed:
        console.print(sentence, markup=False)


def _tables(result: Result, width: int) -> Iterator[Table]:
    """A row per policy; or, where there are more metrics than a line holds, a row per metric."""
    from slurm_plugin.cli import tables

    policies = list(dict.fromkeys([*result.measured, *result.paper]))
    metrics = _metrics(result.measured, result.paper)
    if _FIRST_COLUMN + sum(2 + len(metric) for metric in metrics) <= width:
        rows = [[name, *(_cell(result, name, metric) for metric in metrics)] for name in policies]
        yield tables.plain(["policy", *metrics], rows, numbers=True)
        return
    per_table = max(1, (width - _FIRST_COLUMN) // _COLUMN)
    for at in range(0, len(policies), per_table):
        some = policies[at : at + per_table]
        cells = [[metric, *(_cell(result, name, metric) for name in some)] for metric in metrics]
        known = [row for row in cells if set(row[1:]) != {"-"}]
        yield tables.plain(["metric", *some], known, numbers=True)


def _metrics(*tables: Figures) -> list[str]:
    """Every metric once; a spread (`..._sd`) is printed with what it belongs to."""
    names = list(dict.fromkeys(m for table in tables for row in table.values() for m in row))
    return [name for name in names if not name.endswith("_sd") or name[:-3] not in names]


def _cell(result: Result, policy: str, metric: str) -> str:
    ours = result.measured.get(policy, {}).get(metric)
    spread = result.measured.get(policy, {}).get(f"{metric}_sd")
    paper = result.paper.get(policy, {}).get(metric)
    beside = f" ±{spread:.2g}" if spread is not None else ""
    said = f" ({_number(paper)})" if paper is not None else ""
    return _number(ours) + beside + said


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
