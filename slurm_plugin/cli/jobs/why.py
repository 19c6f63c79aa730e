"""`gputopo why`: what a waiting job waits for."""

from __future__ import annotations

from pathlib import Path

import click

from slurm_plugin.cli.jobs.explain import checked_address, checked_job
from slurm_plugin.cli.options import config_option, engine_option, json_option


@click.command()
@click.argument("job", metavar="JOBID")
@config_option
@json_option
@engine_option
def why(job: str, config_path: Path, as_json: bool, engine: str | None) -> None:
    """Say in one sentence what JOBID (or ARRAY_TASK) waits for, then what shows it.

    It works for every waiting job of yours, whoever chooses its GPUs; root and SlurmUser ask about
    all jobs. Other users' jobs are named as far as squeue shows them.
    """
    import json

    from slurm_plugin.config import settings as config
    from slurm_plugin.slurm.runner import ProcessRunner
    from slurm_plugin.tell.why import words
    from slurm_plugin.tell.why.answer import answer
    from slurm_plugin.tell.why.read import read_state

    job = checked_job(job)
    settings = config.in_force_if_any(config_path)
    runner = ProcessRunner(settings.slurm.bin_dir if settings else None, shows_all=True)
    state = read_state(job, settings, checked_address(engine), runner)
    explanation = answer(state, settings.remote if settings else None)
    click.echo(json.dumps(words.as_json(explanation)) if as_json else words.in_words(explanation))
