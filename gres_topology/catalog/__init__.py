"""The catalog: machines by name, each a YAML file beside this one with its source.

The format is that of `gres_topology.catalog.declared`. PCI addresses and minors are left out: they
differ from one machine to the next of the same kind.
"""

from __future__ import annotations

from functools import cache

from gres_topology.catalog import declared, files
from gres_topology.catalog.files import names
from gres_topology.errors import TopologyError, did_you_mean
from gres_topology.topology import NodeTopology

__all__ = ["load", "names"]


@cache
def load(name: str) -> NodeTopology:
    """One machine of the catalog. TopologyError listing the names if there is none so named."""
    if name not in names():
        guess = did_you_mean(name, names())
        known = ", ".join(names())
        raise TopologyError(f"no machine '{name}' in the catalog; it has {known}{guess}")
    return declared.read(files.text(name), name=name, source=files.source(name))
