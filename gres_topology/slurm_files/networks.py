"""Reads Slurm's topology.conf or topology.yaml, by the file's name."""

from __future__ import annotations

from pathlib import Path

from gres_topology import plain_file
from gres_topology.errors import TopologyError
from gres_topology.slurm_files import topology_conf, topology_yaml
from gres_topology.slurm_files.network import Networks


def read(path: Path) -> Networks:
    """The topologies of the file; TopologyError names file, line and what is wrong."""
    try:
        text = plain_file.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise TopologyError(f"{path}: cannot be read: {error}") from error
    if path.suffix in (".yaml", ".yml"):
        return topology_yaml.parse(text, str(path))
    only = topology_conf.parse(text, str(path))
    return Networks({"": only}, only)
