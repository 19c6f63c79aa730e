"""`gputopo doctor`: is every piece of the installation in its place?"""

from __future__ import annotations

from pathlib import Path

import click

from slurm_plugin.cli.options import config_option, json_option

_COLOURS = {"fail": "red", "warn": "yellow"}


@click.command()
@config_option
@json_option
@click.option("--quiet", is_flag=True, help="Print only what needs attention.")
def doctor(config_path: Path, as_json: bool, quiet: bool) -> None:
    """Check the installation on the controller, and say what to fix.

    Exit status 1 when something is wrong.
    """
    import dataclasses
    import json

    from slurm_plugin.cli import printable
    from slurm_plugin.doctor import examine
    from slurm_plugin.doctor.installation import Installation
    from slurm_plugin.slurm import choose

    findings = list(examine(Installation(config_path, choose.client)))
    wrong = sum(finding.level == "fail" for finding in findings)
    if as_json:
        rows = [dataclasses.asdict(finding) for finding in findings]
        click.echo(json.dumps({"ok": wrong == 0, "findings": rows}, indent=2))
    else:
        for finding in findings:
            if finding.level != "ok" or not quiet:
                level = click.style(f"{finding.level:4}", _COLOURS.get(finding.level))
                # A terminal alone gets the colour.
                click.echo(f"{level}  {printable(f'{finding.check}: {finding.text}')}")
            if finding.fix:
                click.echo(printable(f"      -> {finding.fix}"))
        said = f"{wrong} to fix" if wrong else "nothing to fix"
        warnings = sum(finding.level == "warn" for finding in findings)
        click.echo(f"{said}, {warnings} warning{'s' if warnings > 1 else ''}" if warnings else said)
    raise SystemExit(1 if wrong else 0)
