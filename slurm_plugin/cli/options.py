"""Options several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gres_topology import NodeTopology

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
numa_option = click.option(
    "--numa",
    "numa_file",
    type=click.Path(path_type=Path),
    help="Output of numactl --hardware of the same node, to add.",
)


def with_numa(topology: NodeTopology, path: Path | None) -> NodeTopology:
    """The topology with the NUMA nodes of the file, if there is one. Raises TopologyError."""
    from gres_topology import TopologyError, merge_numa

    if path is None:
        return topology
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise TopologyError(f"{path}: {error.strerror}") from None
    return merge_numa(topology, text, source=str(path))
