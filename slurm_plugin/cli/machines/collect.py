"""`gputopo topology collect`: learn the nodes' hardware through Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli.options import config_option, json_option, number_option

if TYPE_CHECKING:
    from slurm_plugin.slurm.interface import SlurmNode


@click.command()
@click.argument("nodes", nargs=-1)
@config_option
@click.option("--accept", is_flag=True, help="Accept hardware that differs from before.")
@click.option("--partition", help="Partition to run in.  [default: each node's first]")
@number_option(
    "--wait",
    1,
    3600,
    30,
    "Seconds to wait for a free CPU (or, where devices are confined, all GPUs) of a node.",
)
@json_option
def collect(
    nodes: tuple[str, ...],
    config_path: Path,
    accept: bool,
    partition: str | None,
    wait: int,
    as_json: bool,
) -> None:
    """Read the hardware of NODES (host lists; default: every node with GPUs) and keep it.

    Runs the vendors' tools on the nodes by srun; nothing is installed there. Safe to repeat.
    Exit status 1 when a node failed or its hardware changed.
    """
    import dataclasses
    import json

    from slurm_plugin.act.collect.run import CHANGED, FAILED, MAX_BYTES, Collector
    from slurm_plugin.cli.progress import bar
    from slurm_plugin.config import settings as config
    from slurm_plugin.learn.collected import Store
    from slurm_plugin.slurm.clients.command_line import SlurmClient
    from slurm_plugin.slurm.runner import ProcessRunner

    settings = config.load(config_path)
    place, timeout_s = settings.slurm.bin_dir, settings.slurm.timeout_s
    wanted = _wanted(nodes, SlurmClient(ProcessRunner(place, timeout_s)).nodes())
    runner = ProcessRunner(place, timeout_s, max_bytes=MAX_BYTES)
    collector = Collector(runner, Store(settings.state_dir), wait, partition)
    outcomes = []
    with bar("collecting") as done:
        for outcome in collector.collect(wanted, accept):
            outcomes.append(outcome)
            done(len(outcomes) / len(wanted))
            if not as_json:
                click.echo(f"{outcome.node}: {outcome.what}: {outcome.text}")
    reply = _tell_engine(settings.socket)
    if as_json:
        rows = [dataclasses.asdict(outcome) for outcome in outcomes]
        click.echo(json.dumps({"nodes": rows, "engine": reply}, indent=2))
    else:
        click.echo(reply)
    raise SystemExit(any(outcome.what in (CHANGED, FAILED) for outcome in outcomes))


def _wanted(names: tuple[str, ...], known: list[SlurmNode]) -> list[SlurmNode]:
    from gres_topology import hostlist

    if not names:
        return [node for node in known if node.gpu_count]
    try:
        chosen = hostlist.expand(",".join(names))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    by_name = {node.name: node for node in known}
    unknown = [name for name in chosen if name not in by_name]
    if unknown:
        raise click.UsageError(f"{', '.join(unknown)}: no such node in Slurm")
    without = [name for name in chosen if not by_name[name].gpu_count]
    if without:
        raise click.UsageError(f"{', '.join(without)}: no GPUs there by slurm.conf")
    return [by_name[name] for name in chosen]


def _tell_engine(socket_path: Path) -> str:
    """Have a running engine read what was found."""
    from slurm_plugin.base import client
    from slurm_plugin.errors import EngineDown

    try:
        verb, values = client.ask(socket_path, b"reload id=1\n", timeout_s=60)
    except EngineDown as error:
        return f"the engine was not told: {error}"
    return "the engine reloaded" if verb == "ok" else f"the engine: {values.get('message')}"
