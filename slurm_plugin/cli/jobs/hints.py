"""`gputopo hints`: every word a user may write after --gpu-topo=."""

from __future__ import annotations

import click

from slurm_plugin.cli.options import json_option


@click.command()
@json_option
@click.option("--markdown", is_flag=True, help="The tables of docs/hints.md.")
def hints(as_json: bool, markdown: bool) -> None:
    """List the hint keys: their values, defaults and readers."""
    import json

    from policies.hints.page import rows, tables
    from slurm_plugin.cli import tables as terminal
    from slurm_plugin.config.settings import load_policies

    load_policies()
    if markdown:
        click.echo(tables())
    elif as_json:
        click.echo(json.dumps({"keys": rows()}, indent=2))
    else:
        keys = ("key", "values", "default", "doc", "read_by")
        titles = ("key", "values", "default", "what it says", "read by")
        terminal.show(terminal.plain(titles, [[row[key] for key in keys] for row in rows()]))
        click.echo("off stands alone: Slurm's own choice, nothing of ours.")
