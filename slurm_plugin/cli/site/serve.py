"""`gputopo serve` and `gputopo serve-donors`: what systemd runs, in the foreground."""

from __future__ import annotations

from pathlib import Path

import click

from slurm_plugin.cli.options import config_option

#: No timestamps: journald and the like add their own.
LOG_FORMAT = "%(levelname)s %(name)s: %(message)s"


@click.command()
@config_option
@click.option("--verbose", is_flag=True, help="Log more to standard error.")
def serve(config_path: Path, verbose: bool) -> None:
    """Run the engine until SIGTERM; SIGHUP reloads the configuration."""
    import asyncio
    import logging

    from slurm_plugin.serve.run import serve as run

    level = logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(level=level, format=LOG_FORMAT)
    asyncio.run(run(config_path))


@click.command("serve-donors")
@config_option
@click.option(
    "--user", default="slurm", show_default=True, help="Whom the engine runs as: SlurmUser."
)
def serve_donors(config_path: Path, user: str) -> None:
    """Submit donors for the engine, as the users whose jobs borrow; runs as root."""
    import logging

    from slurm_plugin.act.lending.acting.serve import serve as run

    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    run(config_path, user)
