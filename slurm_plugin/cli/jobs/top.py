"""`gputopo top`: the nodes and the waiting jobs on a terminal."""

from __future__ import annotations

from pathlib import Path

import click

from slurm_plugin.cli.options import config_option


@click.command()
@config_option
@click.option("--demo", is_flag=True, help="Show a recorded day; no Slurm is needed.")
def top(config_path: Path, demo: bool) -> None:
    """Show the nodes' GPUs and what each waiting job waits for, live in the terminal.

    Your own jobs are shown in full; of others' you see that GPUs are busy. Root and SlurmUser see
    all jobs. Where the output is no terminal it is printed once.
    """
    import asyncio
    import os
    import sys

    from rich.console import Console

    from slurm_plugin.cli.site.web import sources_of
    from slurm_plugin.tell.top.terminal import Top

    sources = sources_of(config_path, frozenset((0,)), demo)
    console = Console(highlight=False)
    seen = Top(sources, None if os.getuid() in sources.operators else os.getuid(), console)
    asyncio.run(seen.run() if console.is_terminal and sys.stdin.isatty() else seen.once())
