"""`gputopo remote`: what a site needs to lend GPUs over its network."""

from __future__ import annotations

from pathlib import Path

import click

from slurm_plugin.cli.groups import CommandGroup
from slurm_plugin.cli.options import IN_FILE, OUT_FILE, json_option


@click.group(cls=CommandGroup)
def remote() -> None:
    """List and check presets for borrowed GPUs, write the program for the nodes, measure."""


@remote.command()
@json_option
def presets(as_json: bool) -> None:
    """List the middleware presets that come with the package."""
    import json
    from dataclasses import asdict

    from slurm_plugin.config import presets as known

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
    from slurm_plugin.config import presets as known

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
    from slurm_plugin.node import program as packed

    packed.write(file, python)
    beside = "task-prolog, gputopo-carry and gputopo-wire.so"
    click.echo(f"{file}: put it on every node, with {beside} beside it")


@remote.command()
@click.argument("local", type=IN_FILE)
@click.argument("lent", type=IN_FILE)
@click.option("--preset", required=True, metavar="NAME", help="The preset that lent the GPUs.")
@click.option("--where", default="", metavar="TEXT", help="When and where: a note in the file.")
@click.option("--out", type=OUT_FILE, required=True, help="The file for remote.measured.")
def measure(local: Path, lent: Path, preset: str, where: str, out: Path) -> None:
    """Fit what a probe measured on own (LOCAL) and on lent GPUs: remote=auto decides by it."""
    from policies.remote.r_queue.measured import Measured
    from slurm_plugin.cli import files
    from slurm_plugin.config import measured

    own, other = (measured.fit(str(file), measured.runs(file)) for file in (local, lent))
    files.write(out, measured.text(Measured(preset, own, other, where)))
    for name, side in (("own", own), ("lent", other)):
        figures = f"a call {side.call_s * 1e3:.3f} ms, {side.gb_s:.3g} GB/s"
        kernel = f"a kernel {side.kernel_s * 1e3:.3f} ms"
        if side.gpu_gb_s:
            kernel += f", GPU to GPU {side.gpu_gb_s:.3g} GB/s"
        if side.shared is not None:
            kernel += f", beside another job bytes take {1 + side.shared:.2f} times as long"
        click.echo(f"{name:5} {figures}, {kernel}; the worst run is off by {side.error:.0%}")
