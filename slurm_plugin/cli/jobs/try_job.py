"""`gputopo try`: what a job would get, without submitting it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli.options import config_option, json_option

if TYPE_CHECKING:
    from slurm_plugin.config.settings import Config
    from slurm_plugin.decide.decide import Decider


@click.command(
    "try",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@config_option
@json_option
@click.argument("options", metavar="SBATCH_OPTION...", nargs=-1, type=click.UNPROCESSED)
def try_(config_path: Path, as_json: bool, options: tuple[str, ...]) -> None:
    """Say what a job of these sbatch options would get now, without submitting it.

    It would start now, on which GPUs and at which bandwidth, or what it would wait for. A script's
    #SBATCH lines and sbatch's variables (SBATCH_PARTITION and so on) count as in a submit. The job
    is taken to come after all jobs that wait. Nothing is changed. Where options are not judged
    here, nothing is said that Slurm does not say, too.

    \b
      gputopo try --gres=gpu:4 -t 2:00:00 train.sh
    """
    import getpass
    import json
    import os
    from dataclasses import asdict

    from slurm_plugin.config import settings as config
    from slurm_plugin.slurm.runner import ProcessRunner
    from slurm_plugin.tell.why.read import SbatchSays, read_site, sbatch_says
    from slurm_plugin.tell.why.request import (
        NotJudged,
        asks_for_gpus,
        names_some,
        options_of,
        tried_job,
    )
    from slurm_plugin.tell.why.trial import not_judged, trial
    from slurm_plugin.tell.why.words import in_lines

    wanted, has_script = options_of(options, os.environ)
    settings = config.in_force_if_any(config_path)
    runner = ProcessRunner(settings.slurm.bin_dir if settings else None, shows_all=True)
    site = read_site(runner, getpass.getuser(), wanted)
    try:
        asked = tried_job(wanted, site)
        outcome = trial(asked, _decider(settings), settings.remote if settings else None)
        # A test refuses a job that needs more nodes than it names, and Slurm starts it.
        needs_more = bool(outcome.gpus) and len(outcome.gpus) > asked.state.job.min_nodes
        is_refused = names_some(asked.state.job) or ("nodelist" in wanted and needs_more)
    except NotJudged as error:
        outcome, is_refused = not_judged(error), "nodelist" in wanted
    says = SbatchSays()
    # With slots a test passes the engine by, so that it is asked where only Slurm may know; a hint
    # by --gpu-topo would contradict the one for that.
    has_slots = site.snapshot.has_slots
    may_test = not has_slots or ((outcome.never or outcome.unsure) and "gpu-topo" not in wanted)
    # Of --spread-job with GPUs for each task slurmctld 24.11.5 dies (eval_nodes_gres).
    # With --quiet it says nothing.
    if may_test and wanted.keys().isdisjoint(("quiet", "spread-job")):
        bin_dir = settings.slurm.bin_dir if settings else None
        past_engine = has_slots and asks_for_gpus(wanted)
        says = sbatch_says(options, has_script, bin_dir, past_engine=past_engine)
    says = says.beside(site.snapshot, wanted.get("partition", ""))
    if is_refused:
        says = says._replace(would_start=says.would_start or None)
    outcome = outcome.beside(says)
    if as_json:
        click.echo(json.dumps(asdict(outcome) | {"slurm_says": says.words}))
        return
    facts = list(outcome.evidence)
    if says.words:
        facts.append(("Slurm says", says.words))
    click.echo(in_lines(outcome.sentence, facts))


def _decider(config: Config | None) -> Decider | None:
    """What the engine decides by; None where that cannot be read here."""
    from slurm_plugin.decide.decide import Decider
    from slurm_plugin.decide.load_machines import load_machines
    from slurm_plugin.decide.rules import Rules
    from slurm_plugin.decide.site_policies import SitePolicies
    from slurm_plugin.errors import PluginError
    from slurm_plugin.learn.job_profiles import Learned

    if config is None:
        return None
    try:
        policies = SitePolicies(config, Learned(None))
        return Decider(load_machines(config), Rules(config), config.waiting, policies)
    except (PluginError, OSError):
        return None
