"""`gputopo hints`: every word a user may write after --gpu-topo=."""

from __future__ import annotations

import click

from slurm_plugin.cli.options import json_option


@click.command()
@json_option
@click.option("--markdown", is_flag=True, help="The tables of docs/hints.md.")
def hints(as_json: bool, markdown: bool) -> None:
    """List the hint keys: values, default, who reads them."""
    import json

    from policies.hints.page import rows, tables
    from slurm_plugin.config.settings import load_policies

    load_policies()
    if markdown:
        click.echo(tables())
    elif as_json:
        click.echo(json.dumps({"keys": rows()}, indent=2))
    else:
        _print()


def _print() -> None:
    from rich.console import Console
    from rich.table import Table

    from policies.hints.page import rows

    # Never so narrow that a table of words cannot be read.
    console = Console(highlight=False)
    console.width = max(console.width, 120)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("key", "values", "default", "what it says", "read by"):
        table.add_column(title, no_wrap=title == "key", overflow="fold")
    for row in rows():
        table.add_row(*(row[key] for key in ("key", "values", "default", "doc", "read_by")))
    console.print(table)
    console.print("off stands alone: Slurm's own choice, nothing of ours.", markup=False)
