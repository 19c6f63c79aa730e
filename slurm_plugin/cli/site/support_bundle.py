"""`gputopo support-bundle`: one file for a report of a fault."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli.options import OUT_FILE, config_option

if TYPE_CHECKING:
    from slurm_plugin.doctor.bundle import BundlePart

#: Names of a kind that are listed on the terminal; the rest is counted.
_LISTED = 10


@click.command("support-bundle")
@config_option
@click.option(
    "--output", type=OUT_FILE, help="File to write.  [default: gputopo-support-TIME.tar.gz]"
)
@click.option("--hide-nodes", is_flag=True, help="Replace the names of nodes, too.")
def support_bundle(config_path: Path, output: Path | None, hide_nodes: bool) -> None:
    """Write a tar.gz for a report of a fault: settings, versions, state and the last of the logs.

    Names of users, accounts, jobs and other hosts are replaced by user1, account2 and so on,
    secrets are taken out. As root or SlurmUser it has more than as another user. Look at it before
    you send it.
    """
    import time

    from slurm_plugin.base import whole_file
    from slurm_plugin.cli import printable
    from slurm_plugin.doctor.bundle import Bundle, packed
    from slurm_plugin.doctor.placeholders import Placeholders

    if output is None:
        output = Path(time.strftime("gputopo-support-%Y%m%d-%H%M%S.tar.gz"))
    names = Placeholders(hides_nodes=hide_nodes)
    bundle = Bundle(config_path, names)
    parts = list(bundle.parts())
    counts = [_counted(kind, some) for kind, some in names.used.items()]
    replaced = f"replaced: {', '.join(counts) or 'nothing'}"
    taken_out = f"taken out: {bundle.secrets.count} passwords, keys and the like"
    lines = [*_contents(parts), replaced, taken_out]
    content = packed(parts, "".join(f"{line}\n" for line in lines))
    whole_file.replace(output, content, 0o600)
    click.echo(f"wrote {output}: {len(content)} bytes, for its owner alone\n")
    click.echo("\n".join(lines))
    for kind, some in names.used.items():
        shown = [f"{name} is {placeholder}" for name, placeholder in list(some.items())[:_LISTED]]
        more = len(some) - len(shown)
        shown += [f"and {more} more"] if more > 0 else []
        click.echo(printable(f"  {kind}: {', '.join(shown)}"))
    click.echo("(who is who stands here alone, not in the file)")
    click.echo(f"\nLook at it before you send it: tar -xzOf {output} | less")


def _contents(parts: list[BundlePart]) -> list[str]:
    """What is in it, and what is not and why."""
    width = max(len(one.name) for one in parts)
    return [
        f"{one.name:{width}}  {len(one.text):>8}  {one.about}"
        + (f"; {_lacks(one)}: {' '.join(one.problem.split())}" if one.problem else "")
        for one in parts
    ]


def _lacks(one: BundlePart) -> str:
    return "NOT ALL" if one.text else "NOT THERE"


def _counted(kind: str, some: dict[str, str]) -> str:
    plural = "addresses" if kind == "address" else f"{kind}s"
    return f"{len(some)} {kind if len(some) == 1 else plural}"
