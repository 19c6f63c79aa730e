"""`gputopo profile`: fit performance models from runs, and show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_plugin.cli.groups import CommandGroup
from slurm_plugin.cli.options import (
    OUT_FILE,
    checked_profile,
    database_option,
    fitting_options,
    json_option,
    number_option,
    plot_option,
    task_option,
)
from slurm_plugin.cli.profiles.run import run

if TYPE_CHECKING:
    from policies.performance import Run
    from slurm_plugin.learn.speed_models.predictions import Prediction


@click.group(cls=CommandGroup)
def profile() -> None:
    """Fit models of how fast jobs run on which shape, and show them."""


profile.add_command(run)


@profile.command()
@click.argument("file", type=OUT_FILE)
@click.option("--name", help="The profile's name (default: the file's).")
@task_option
@fitting_options
@database_option
def fit(
    file: Path,
    name: str | None,
    task: str,
    kind: str,
    family: str,
    parameters: float | None,
    startup: float,
    add: bool,
    database: Path,
) -> None:
    """Fit the runs in FILE (CSV: nodes, gpus, local_batch, step_s) and store the model."""
    from policies.performance.similarity import Traits
    from slurm_plugin.learn.speed_models.database import Database
    from slurm_plugin.learn.speed_models.predictions import in_words

    name = checked_profile(file.name.split(".")[0] if name is None else name)
    traits = Traits(name, family, parameters)
    profile = Database(database).fit(traits, task, kind, _runs(file), startup, add=add)
    click.echo(in_words(name, task, profile.model, profile.runs))


@profile.command()
@click.argument("model", required=False)
@task_option
@click.option(
    "--batch", type=click.IntRange(min=1), help="Global batch size (default: what one GPU holds)."
)
@number_option("--nodes", 1, 1024, 4, "Nodes at most.")
@number_option("--gpus-per-node", 1, 128, 4, "GPUs per node at most.")
@plot_option()
@database_option
@json_option
def show(
    model: str | None,
    task: str,
    batch: int | None,
    nodes: int,
    gpus_per_node: int,
    plot: Path | None,
    database: Path,
    as_json: bool,
) -> None:
    """Show what MODEL takes on each shape, with error bars; without MODEL, list them.

    MODEL may be cut short. For one that was never profiled the likest one stands in. The
    output says either.
    """
    from gres_topology.pictures import write
    from policies.performance.similarity import Traits
    from slurm_plugin.learn.speed_models.database import Database
    from slurm_plugin.learn.speed_models.drawing import drawn
    from slurm_plugin.learn.speed_models.predictions import in_words, predictions

    kept = Database(database)
    if model is None:
        _list(kept.all(), as_json)
        return
    name = kept.complete(model)
    match = kept.find(Traits(name), task)
    short = "" if name == model else f"{model} is taken for {name}, the only name that begins so"
    note = "; ".join(filter(None, (short, match.note)))
    size = batch or match.model.max_local_batch
    rows = predictions(match.model, size, task, nodes, gpus_per_node)
    own = match.profile.traits.name
    if plot is not None:
        title = name if own == name else f"{name} (as {own})"
        write(drawn(rows, size, f"{title}, {task}, batch {size}"), plot)
    if as_json:
        facts = {"profile": own, "asked": model, "task": task, "likeness": match.likeness,
                 "note": note, "batch": size, "model": match.model.kind}  # fmt: skip
        click.echo(json.dumps(facts | {"rows": [_plain(row) for row in rows]}, indent=2))
        return
    click.echo(in_words(own, task, match.model, match.profile.runs))
    if note:
        click.echo(note)
    _print(rows, size)


def _runs(file: Path) -> list[Run]:
    from policies.performance import read_runs
    from slurm_plugin.cli import Fault

    try:
        return read_runs(file.read_text(encoding="utf-8"), file.name)
    except OSError as error:
        raise Fault(f"{file}: {error.strerror}; expected a CSV of runs") from error
    except UnicodeDecodeError as error:
        raise Fault(f"{file}: no text; expected a CSV of runs") from error


def _plain(row: Prediction) -> dict[str, float | int | str]:
    return {
        "shape": str(row.shape),
        "nodes": row.shape.nodes,
        "gpus_per_node": row.shape.gpus_per_node,
        "local_batch": row.local_batch,
        "step_s": row.estimate.step_s,
        "low_s": row.estimate.low_s,
        "high_s": row.estimate.high_s,
        "samples_per_s": row.samples_per_s,
    }


def _list(profiles: Any, as_json: bool) -> None:
    from slurm_plugin.learn.speed_models.predictions import in_words

    if as_json:
        facts = [{"profile": one.traits.name, "task": one.task, "model": one.model.kind,
                 "runs": len(one.runs)} for one in profiles]  # fmt: skip
        click.echo(json.dumps({"profiles": facts}, indent=2))
        return
    for one in profiles:
        click.echo(in_words(one.traits.name, one.task, one.model, one.runs))


def _print(rows: list[Prediction], batch: int) -> None:
    click.echo(f"batch {batch}; 9 of 10 runs lie between low and high")
    click.echo(
        f"{'shape':>7} {'per GPU':>8} {'step':>10} {'low':>10} {'high':>10} {'samples/s':>10}"
    )
    for row in rows:
        step, low, high = (
            f"{1000 * value:,.1f} ms"
            for value in (row.estimate.step_s, row.estimate.low_s, row.estimate.high_s)
        )
        click.echo(
            f"{row.shape!s:>7} {row.local_batch:>8} {step:>10} {low:>10} {high:>10}"
            f" {row.samples_per_s:>10,.1f}"
        )
