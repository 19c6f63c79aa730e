"""Options several commands share."""

from __future__ import annotations

from pathlib import Path

import click

config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    default=Path("/etc/slurm/gputopo.yaml"),
    show_default=True,
    envvar="GPUTOPO_CONFIG",
    help="Configuration file.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
