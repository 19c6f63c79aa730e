"""`gputopo experiment NAME`: run a paper's experiment, its figures beside ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from slurm_plugin.cli.options import json_option

if TYPE_CHECKING:
    from simulation.experiments import Experiment, Figures, Result


#: A table of more metrics than this is printed with the metrics as rows.
MANY = 16


class Experiments(click.Group):
    """One command for each registered experiment, made from its declaration."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every experiment's name."""
        from simulation.experiments import experiments

        return sorted(experiments.names())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The experiment as a command; None where there is none of that name."""
        from simulation.experiments import experiments

        return _command(experiments.get(cmd_name)) if cmd_name in experiments.names() else None


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
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    metrics = _metrics(result.measured, result.paper)
    policies = list(dict.fromkeys([*result.measured, *result.paper]))
    if len(metrics) > MANY:
        # More than a line holds: one line per metric instead of per policy.
        console.width = max(console.width, 140)
        titles, rows = (
            ["metric", *policies],
            [
                (metric, *(_cell(result, policy, metric) for policy in policies))
                for metric in metrics
            ],
        )
    else:
        titles, rows = (
            ["policy", *metrics],
            [
                (policy, *(_cell(result, policy, metric) for metric in metrics))
                for policy in policies
            ],
        )
    for number, title in enumerate(titles):
        table.add_column(title, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    seeds = " ".join(map(str, result.seeds)) or "none"
    console.print(f"[bold]{result.experiment}[/bold], seeds {seeds}; (in brackets: the paper)")
    console.print(table)
    for note in result.notes:
        console.print(f"- {note}", markup=False)


def _metrics(*tables: Figures) -> list[str]:
    return list(dict.fromkeys(m for table in tables for row in table.values() for m in row))


def _cell(result: Result, policy: str, metric: str) -> str:
    ours = result.measured.get(policy, {}).get(metric)
    paper = result.paper.get(policy, {}).get(metric)
    said = f" ({_number(paper)})" if paper is not None else ""
    return _number(ours) + said


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
