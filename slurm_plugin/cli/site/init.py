"""`gputopo init`: a gputopo.yaml to begin with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli.options import config_option
from slurm_plugin.cli.site.enable import apply_option

if TYPE_CHECKING:
    from slurm_plugin.slurm.runner import Runner

#: Names that one call of scontrol folds: an argument has 128 KiB at most.
_AT_ONCE = 2000


@click.command()
@config_option
@apply_option
def init(config_path: Path, is_applied: bool) -> None:
    """Show a gputopo.yaml for this site, by what Slurm says of its nodes; with --apply, write it.

    It names every kind of GPU node: a machine of the catalog where the GRES type leaves one, with
    all of its links alike, which is a guess and called one; else that the nodes are to be asked
    (gputopo topology collect). The mode is observe: no job changes. A file that names nodes already
    is never written over.
    """
    import os

    from slurm_plugin.base import whole_file
    from slurm_plugin.cli import Fault, printable
    from slurm_plugin.config import settings
    from slurm_plugin.enabling import first_file
    from slurm_plugin.errors import PluginError
    from slurm_plugin.learn.collected import Store
    from slurm_plugin.slurm.clients.command_line import SlurmClient
    from slurm_plugin.slurm.runner import ProcessRunner

    is_there = os.path.lexists(config_path)
    config = settings.load(config_path) if is_there else None
    if config is not None and config.nodes:
        raise Fault(f"{config_path} names nodes already; --config FILE for another file")
    state_dir = config.state_dir if config else settings.DEFAULT_STATE_DIR
    try:
        collected = Store(state_dir).nodes()
    except PluginError as error:
        click.echo(f"note: {error}", err=True)
        collected = {}
    run = ProcessRunner(config.slurm.bin_dir if config else None)
    slurm = SlurmClient(run)
    nodes = slurm.nodes()
    text = printable(
        first_file.text(
            config_path, nodes, collected, slurm.config(), lambda names: _folded(run, names)
        )
    )
    click.echo(text, nl=False)
    if not any(node.gpu_count for node in nodes):
        raise Fault("Slurm has no node with GPUs (GresTypes and Gres= in slurm.conf)")
    if not is_applied:
        click.echo("\nnothing was written: gputopo init --apply does it", err=True)
        return
    if is_there and _says(config_path) in ({}, _says(settings.SAMPLE)):
        whole_file.replace_contents(config_path, text.encode())
    elif is_there:
        raise Fault(f"{config_path} has keys of its own: put these lines into it")
    else:
        whole_file.replace(config_path, text.encode(), 0o644)
    click.echo(f"\ndone: {config_path}", err=True)
    click.echo("next: gputopo topology collect; gputopo enable", err=True)


def _says(path: Path) -> object:
    """What is in a gputopo.yaml; {} for nothing but comments."""
    import yaml

    return yaml.safe_load(path.read_bytes()) or {}


def _folded(run: Runner, names: Sequence[str]) -> str:
    parts = [names[at : at + _AT_ONCE] for at in range(0, len(names), _AT_ONCE)]
    argv = ["scontrol", "show", "hostlistsorted"]
    return ",".join(run([*argv, ",".join(part)]).strip() for part in parts)
