"""Options several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gres_topology import NodeTopology

TASKS = ("training", "inference")
KINDS = ("calibrated", "genie")

#: A file that is read, and one that is written.
IN_FILE, OUT_FILE = click.Path(path_type=Path), click.Path(path_type=Path, dir_okay=False)


def _site_file(
    *names: str, kind: click.Path, default: str, envvar: str, about: str
) -> Callable[..., Any]:
    """A file that a site has once: the default path is shown, and `envvar` may say another."""
    return click.option(
        *names, type=kind, default=Path(default), show_default=True, envvar=envvar, help=about
    )


config_option = _site_file(
    "--config",
    "config_path",
    kind=IN_FILE,
    default="/etc/slurm/gputopo.yaml",
    envvar="GPUTOPO_CONFIG",
    about="Configuration file.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
engine_option = click.option(
    "--engine",
    metavar="HOST:PORT",
    envvar="GPUTOPO_ENGINE",
    help="Where the engine listens (explain_listen).  [default: the configuration's]",
)
numa_option = click.option(
    "--numa",
    "numa_file",
    type=IN_FILE,
    help="Output of numactl --hardware of the same node, to add.",
)
database_option = _site_file(
    "--database",
    kind=OUT_FILE,
    default="/var/lib/gputopo/performance.db",
    envvar="GPUTOPO_PERFORMANCE",
    about="The model database.",
)
task_option = click.option(
    "--task", type=click.Choice(TASKS), default="training", show_default=True, help="Kind of work."
)
_FITTING = (
    click.option("--model", "kind", type=click.Choice(KINDS), default=KINDS[0], show_default=True,
                 help="Kind of model."),
    click.option("--family", default="", help="Such as cnn: to find stand-ins for unknown models."),
    click.option("--parameters", type=click.FloatRange(min=0, min_open=True),
                 help="Millions of parameters: the same."),
    click.option("--startup", type=click.FloatRange(min=0), default=0.0,
                 help="Seconds before the first iteration."),
    click.option("--add", is_flag=True, help="Add the runs to those stored, and fit all of them."),
)  # fmt: skip


def plot_option(about: str = "Draw to this file (.svg, .png).") -> Callable[..., Any]:
    """--plot FILE."""
    return click.option("--plot", type=OUT_FILE, help=about)


def number_option(
    name: str, low: float, high: float, default: float, about: str
) -> Callable[..., Any]:
    """A number from `low` to `high`, whole where `low` and the default are, which is shown."""
    is_whole = isinstance(low, int) and isinstance(default, int)
    kind = click.IntRange(int(low), int(high)) if is_whole else click.FloatRange(low, high)
    return click.option(name, type=kind, default=default, show_default=True, help=about)


def fitting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--model, --family, --parameters, --startup and --add."""
    for option in reversed(_FITTING):
        command = option(command)
    return command


def checked_profile(name: str) -> str:
    """The name, if a profile may have it."""
    from policies.contract.hint_keys import PROFILE

    if PROFILE.read(name) is None:
        raise click.UsageError(f"--name {name!r}: expected {PROFILE.allowed}")
    return name


def with_numa(topology: NodeTopology, path: Path | None) -> NodeTopology:
    """The topology with the NUMA nodes of the file, if there is one. Raises TopologyError."""
    from gres_topology import TopologyError, merge_numa
    from gres_topology.readers import pasted

    if path is None:
        return topology
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise TopologyError(f"{path}: {error.strerror}") from None
    return merge_numa(topology, pasted.clean(text), source=str(path))
