"""The catalog: machines by name, each a YAML file beside this one with its source.

The format is that of `gres_topology.catalog.declared`. PCI addresses and minors are left out: they
differ from one machine to the next of the same kind.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from gres_topology.catalog import declared
from gres_topology.errors import TopologyError
from gres_topology.topology import NodeTopology


@cache
def names() -> tuple[str, ...]:
    """The machines of the catalog, sorted."""
    files = resources.files(__package__).iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


@cache
def load(name: str) -> NodeTopology:
    """One machine of the catalog. TopologyError listing the names if there is none so named."""
    if name not in names():
        raise TopologyError(f"no machine '{name}' in the catalog; it has {', '.join(names())}")
    text = resources.files(__package__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return declared.read(text, name=name, source=f"catalog/{name}.yaml")
