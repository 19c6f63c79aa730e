"""`gputopo config`: look at the configuration without running anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli.groups import CommandGroup
from slurm_plugin.cli.options import IN_FILE, config_option, json_option

if TYPE_CHECKING:
    from slurm_plugin.decide.machines import Machines


@click.group(cls=CommandGroup)
def config() -> None:
    """Check the configuration, or list its keys."""


@config.command()
@click.argument("file", type=IN_FILE, required=False)
@config_option
@json_option
def check(file: Path | None, config_path: Path, as_json: bool) -> None:
    """Check FILE (default: the installed one): keys, node sets, topologies, the network, profiles.

    Exit status 0 when the engine would load it, 2 with the line of each mistake when not.
    """
    from slurm_plugin.errors import ConfigError
    from slurm_plugin.tell.explain.text import printable

    path = file or config_path
    try:
        machines, rules = _checked(path)
    except ConfigError as error:
        problems = [" ".join(problem.split()) for problem in error.problems]
        if as_json:
            click.echo(json.dumps({"ok": False, "errors": problems}))
            raise SystemExit(2) from None
        for problem in problems[:-1]:
            click.echo(printable(f"Error: {problem}"), err=True)
        raise ConfigError(error.problems[-1]) from None
    left = {name: machine.problem for name, machine in machines.items() if machine.problem}
    if as_json:
        told = {"ok": True, "nodes": len(machines), "rules": rules, "left_to_slurm": left}
        click.echo(json.dumps(told))
        return
    click.echo(f"{path}: {len(machines)} nodes, {rules} rules")
    if not machines:
        click.echo(
            f"{path}: no nodes are declared, so Slurm places every job by itself;"
            " expected nodes: with a host list and its topology"
        )
    for name, problem in left.items():
        click.echo(f"{name}: left to Slurm's own choice: {problem}")


def _checked(path: Path) -> tuple[Machines, int]:
    """The nodes and how many rules the engine would have; ConfigError with all that is wrong."""
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
    with mistakes.caught():
        read_profiles(settings.topo_aware.profiles)
    with mistakes.caught():
        machines = load_machines(settings)
    with mistakes.caught():
        networks_of(settings)
    mistakes.settle()
    if settings.genie is not None:
        site_of(settings.genie, machines, str(settings.path))
    return machines, len(settings.partitions)


@config.command()
@json_option
def keys(as_json: bool) -> None:
    """List every key, as Markdown tables: type, default, meaning."""
    from slurm_plugin.config import reference
    from slurm_plugin.config.settings import load_policies

    if as_json:
        click.echo(json.dumps(reference.rows(load_policies())))
    else:
        click.echo(reference.markdown(load_policies()), nl=False)


@config.command()
def schema() -> None:
    """Print a JSON Schema of gputopo.yaml, by which editors complete and check keys."""
    from slurm_plugin.config import reference
    from slurm_plugin.config.settings import load_policies

    click.echo(json.dumps(reference.json_schema(load_policies()), indent=2))
