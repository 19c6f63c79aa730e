"""`gputopo serve`: the engine in the foreground, as systemd runs it."""

from __future__ import annotations

from pathlib import Path

import click

from slurm_plugin.cli.options import config_option


@click.command()
@config_option
@click.option("--verbose", is_flag=True, help="Log more to standard error.")
def serve(config_path: Path, verbose: bool) -> None:
    """Run the engine until SIGTERM; SIGHUP reloads the configuration."""
    import asyncio
    import logging

    from slurm_plugin.engine.run import serve as run

    level = logging.DEBUG if verbose else logging.INFO
    # No timestamps: journald and the like add their own.
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    asyncio.run(run(config_path))
