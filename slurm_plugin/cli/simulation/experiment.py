"""`gputopo experiment NAME`: run a paper's experiment, its figures beside ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from slurm_plugin.cli.options import json_option

if TYPE_CHECKING:
    from rich.table import Table

    from simulation.experiments import Experiment, Figures, Result

#: Widths of a table's columns where the metrics are the rows.
_FIRST_COLUMN, _COLUMN = 32, 23
#: Characters of a line that goes to a file.
_WIDTH = 180


class Experiments(click.Group):
    """One command for each registered experiment, made from its declaration."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every experiment's name."""
        from simulation.experiments import experiments

        return sorted(experiments)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The experiment as a command; None where there is none of that name."""
        from simulation.experiments import experiments

        return _command(experiments[cmd_name]) if cmd_name in experiments else None


@click.group(cls=Experiments)
def experiment() -> None:
    """Repeat a paper's experiment; its figures beside ours."""


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


def _command(found: Experiment) -> click.Command:
    def run(as_json: bool, seeds: list[int] | None = None, **options: str) -> None:
        result = found.run(seeds, **options)
        if as_json:
            click.echo(json.dumps(result.to_dict(), indent=2))
        else:
            _print(result)

    command = click.command(name=found.name, help=found.summary)(json_option(run))
    if found.seeds:
        default = ",".join(map(str, found.seeds))
        command.params.insert(
            0,
            click.Option(["--seeds"], callback=_seeds, metavar="LIST", help=f"Default: {default}."),
        )
    for name, words in found.options.items():
        option = click.Option([f"--{name}"], type=click.Choice(words), default=words[0],
                              show_default=True, help="Which form of it.")  # fmt: skip
        command.params.insert(0, option)
    return command


def _print(result: Result) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    seeds = " ".join(map(str, result.seeds)) or "none"
    console.print(f"[bold]{result.experiment}[/bold], seeds {seeds}; (in brackets: the paper)")
    for table in _tables(result, console.width):
        console.print(table)
    for note in result.notes:
        console.print(f"- {note}", markup=False)


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
    found = list(dict.fromkeys(m for table in tables for row in table.values() for m in row))
    return [name for name in found if not name.endswith("_sd") or name[:-3] not in found]


def _cell(result: Result, policy: str, metric: str) -> str:
    ours = result.measured.get(policy, {}).get(metric)
    spread = result.measured.get(policy, {}).get(f"{metric}_sd")
    paper = result.paper.get(policy, {}).get(metric)
    beside = f" ±{spread:.2g}" if spread is not None else ""
    said = f" ({_number(paper)})" if paper is not None else ""
    return _number(ours) + beside + said


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
