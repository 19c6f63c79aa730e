"""`gputopo explain`: why a job got the GPUs it got, and what Slurm would have taken."""

from __future__ import annotations

from pathlib import Path

import click

from slurm_plugin.cli.options import config_option, engine_option, json_option, plot_option


@click.command()
@click.argument("job", metavar="JOBID")
@config_option
@json_option
@click.option("--all", "every", is_flag=True, help="Every decision in full, not only the last.")
@plot_option("Draw its GPUs, and the sets it could have had, to this file (.svg, .png).")
@engine_option
def explain(
    job: str, config_path: Path, as_json: bool, every: bool, plot: Path | None, engine: str | None
) -> None:
    """Show what was asked, considered, chosen and postponed for JOBID (or ARRAY_TASK).

    Root and SlurmUser read the decision log; everybody else sees their own jobs, through
    the engine where it listens for them, else as far as Slurm's AdminComment tells.
    """
    import json

    from gres_topology.pictures import write
    from slurm_plugin.config import settings as config
    from slurm_plugin.slurm.runner import ProcessRunner
    from slurm_plugin.tell.explain.drawing import drawn
    from slurm_plugin.tell.explain.find import explained
    from slurm_plugin.tell.explain.text import in_words

    job = checked_job(job)
    settings = config.in_force_if_any(config_path)
    runner = ProcessRunner(settings.slurm.bin_dir) if settings else ProcessRunner()
    explanation = explained(job, settings, checked_address(engine), runner)
    for story in (every and explanation.records) or [explanation.story]:
        click.echo(json.dumps(story) if as_json else in_words(story))
    if plot is not None and not explanation.machines:
        raise click.UsageError("--plot: the job's nodes are not known here")
    if plot is not None:
        write(drawn(explanation.story, explanation.machines), plot)
        click.echo(f"drawn: {plot}", err=True)


def checked_job(job: str) -> str:
    """What names a job: an id, or ARRAY_TASK."""
    import re

    if not re.fullmatch(r"[1-9]\d{0,9}(_\d{1,9})?", job):
        raise click.UsageError(f"{job!r}: expected a job id, or ARRAY_TASK such as 12_3")
    return job


def checked_address(text: str | None) -> tuple[str, int] | None:
    """--engine's host and port."""
    from slurm_plugin.config.yaml_reader import address_in

    address = None if text is None else address_in(text)
    if text is not None and address is None:
        raise click.UsageError(f"--engine {text!r}: expected host:port")
    return address
