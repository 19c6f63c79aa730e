"""`gputopo remote`: what a site needs to lend GPUs over its network."""

from __future__ import annotations

from pathlib import Path

import click

from slurm_plugin.cli.groups import CommandGroup
from slurm_plugin.cli.options import OUT_FILE, json_option


@click.group(cls=CommandGroup)
def remote() -> None:
    """List and check presets for borrowed GPUs, and write the program for the nodes."""


@remote.command()
@json_option
def presets(as_json: bool) -> None:
    """List the middleware presets that come with the package."""
    import json
    from dataclasses import asdict

    from slurm_plugin.remote import presets as known

    presets = [known.load(name) for name in known.names()]
    if as_json:
        click.echo(json.dumps({"presets": [asdict(preset) for preset in presets]}, indent=2))
        return
    for preset in presets:
        click.echo(f"{preset.name:10} {preset.about}")


@remote.command()
@click.argument("file", type=OUT_FILE)
def check(file: Path) -> None:
    """Check a preset of the site's own."""
    from slurm_plugin.remote import presets as known

    preset = known.load(str(file.absolute()))
    why = preset.needs_trust()
    click.echo(f"{file}: {preset.name}: " + (f"needs trust_network: {why}" if why else "good"))


@remote.command()
@click.argument("file", type=OUT_FILE)
@click.option(
    "--python",
    metavar="PATH",
    default="/usr/bin/python3",
    show_default=True,
    help="Python 3.11 or later, by its path on the nodes.",
)
def program(file: Path, python: str) -> None:
    """Write the program that donors and jobs run on the nodes: one file, Python alone."""
    from slurm_plugin.remote import program as packed

    packed.write(file, python)
    beside = "task-prolog, gputopo-carry and gputopo-wire.so"
    click.echo(f"{file}: put it on every node, with {beside} beside it")
