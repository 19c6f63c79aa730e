"""`gputopo explain`: why a job got the GPUs it got, and what Slurm would have taken."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli.options import config_option, json_option

if TYPE_CHECKING:
    from slurm_plugin.config.settings import Config


@click.command()
@click.argument("job", metavar="JOBID")
@config_option
@json_option
@click.option("--all", "every", is_flag=True, help="Every decision in full, not only the last.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the node with the job's GPUs marked (.svg, .png; one file per node).",
)
@click.option(
    "--engine",
    metavar="HOST:PORT",
    envvar="GPUTOPO_ENGINE",
    help="Where the engine listens (explain_listen).  [default: the configuration's]",
)
def explain(
    job: str, config_path: Path, as_json: bool, every: bool, plot: Path | None, engine: str | None
) -> None:
    """Show what was asked, considered, chosen and postponed for JOBID (or ARRAY_TASK).

    Root and SlurmUser read the decision log; everybody else sees their own jobs, through
    the engine where it listens for them, else as far as Slurm's AdminComment tells.
    """
    import json

    from slurm_plugin.explain.find import explained
    from slurm_plugin.explain.story import gpus_of
    from slurm_plugin.explain.text import in_words
    from slurm_plugin.slurm.runner import ProcessRunner

    job = _checked(job)
    settings = _settings(config_path)
    runner = ProcessRunner(settings.slurm.bin_dir) if settings else ProcessRunner()
    found = explained(job, settings, _address(engine), runner)
    if every and found.records:
        for record in found.records:
            click.echo(json.dumps(record) if as_json else in_words(record))
    else:
        click.echo(json.dumps(found.story) if as_json else in_words(found.story))
    if plot is not None:
        _draw(found.machines, gpus_of(found.story), int(found.story["job"]), plot)


def _checked(job: str) -> str:
    import re

    if not re.fullmatch(r"[1-9]\d{0,9}(_\d{1,9})?", job):
        raise click.UsageError(f"{job!r}: expected a job id, or ARRAY_TASK such as 12_3")
    return job


def _settings(path: Path) -> Config | None:
    """The configuration, or None on hosts that have none."""
    from slurm_plugin.config import settings as config

    return config.load(path) if path.exists() else None


def _address(text: str | None) -> tuple[str, int] | None:
    from slurm_plugin.config.yaml_reader import address_in

    address = None if text is None else address_in(text)
    if text is not None and address is None:
        raise click.UsageError(f"--engine {text!r}: expected host:port")
    return address


def _draw(machines: dict[str, object], gpus: dict[str, list[int]], job: int, target: Path) -> None:
    from slurm_plugin.explain.machines import draw

    if not machines:
        raise click.UsageError("--plot: the job's nodes are not known here")
    for path in draw(machines, gpus, job, target):
        click.echo(f"drawn: {path}", err=True)
