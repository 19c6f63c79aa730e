"""`gputopo config`: look at the configuration without running anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli.groups import CommandGroup
from slurm_plugin.cli.options import IN_FILE, config_option

if TYPE_CHECKING:
    from slurm_plugin.decide.machines import Machines


@click.group(cls=CommandGroup)
def config() -> None:
    """Check the configuration, or list its keys."""


@config.command()
@click.argument("file", type=IN_FILE, required=False)
@config_option
def check(file: Path | None, config_path: Path) -> None:
    """Check FILE (default: the installed one): keys, node sets, topologies, the network, profiles.

    Exit status 0 when the engine would load it, 2 with the line of each mistake when not.
    """
    from slurm_plugin.errors import ConfigError

    try:
        _check(file or config_path)
    except ConfigError as error:
        from slurm_plugin.tell.explain.text import printable

        *others, last = error.problems
        for problem in others:
            click.echo(printable(f"Error: {' '.join(problem.split())}"), err=True)
        raise ConfigError(last) from None


def _check(path: Path) -> None:
    """Print what the engine would have of the file; ConfigError with all that is wrong."""
    from slurm_plugin.act.genie.site import site_of
    from slurm_plugin.config import settings as configuration
    from slurm_plugin.decide.load_machines import load_machines
    from slurm_plugin.errors import Mistakes
    from slurm_plugin.learn.job_profiles import read_profiles
    from slurm_plugin.serve.setup import networks_of

    # Somebody else's file, too: nothing of what it names is run.
    settings = configuration.load(path, writes=False)
    mistakes = Mistakes()
    machines: Machines = {}
    if settings.topo_aware.profiles is not None:
        with mistakes.caught():
            read_profiles(settings.topo_aware.profiles)
    with mistakes.caught():
        machines = load_machines(settings)
    with mistakes.caught():
        networks_of(settings)
    mistakes.settle()
    if settings.genie is not None:
        site_of(settings.genie, machines, str(settings.path))
    click.echo(f"{settings.path}: {len(machines)} nodes, {len(settings.partitions)} rules")
    if not machines:
        click.echo(
            f"{settings.path}: no nodes are declared, so Slurm places every job by itself;"
            " expected nodes: with a host list and its topology"
        )
    for name, machine in machines.items():
        if machine.problem:
            click.echo(f"{name}: left to Slurm's own choice: {machine.problem}")


@config.command()
def keys() -> None:
    """List every key, as Markdown tables: type, default, meaning."""
    from slurm_plugin.config import reference
    from slurm_plugin.config.settings import load_policies

    click.echo(reference.markdown(load_policies()), nl=False)


@config.command()
def schema() -> None:
    """Print a JSON Schema of gputopo.yaml, by which editors complete and check keys."""
    from slurm_plugin.config import reference
    from slurm_plugin.config.settings import load_policies

    click.echo(json.dumps(reference.json_schema(load_policies()), indent=2))
