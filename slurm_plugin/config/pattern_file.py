"""Reads a pattern's file; everything about its contents is `policies.patterns.graph_file`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gres_topology import plain_file
from policies.contract.hint_keys import is_pattern_name
from policies.patterns import graph_file
from policies.patterns.graph_file import Graph
from policies.patterns.pattern import PATTERNS, add_graph
from slurm_plugin.errors import PluginError

#: Two nvidia-smi readings of a large node are some hundred kilobytes.
MAX_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class SitePattern:
    """One pattern of the site."""

    #: The name by which policies know it.
    internal: str
    ranks: int
    #: Where gputopo.yaml names it.
    line: int = 0


def site_pattern(name: str, path: Path, line: int = 0) -> SitePattern:
    """Read the pattern in `path` and make it known; raises as `read` does, for a name too."""
    if not is_pattern_name(name):
        others = ", ".join(PATTERNS)
        raise PluginError(f"expected a name of up to 63 letters, digits, . - _, none of {others}")
    graph = read(path)
    return SitePattern(add_graph(name, graph.ranks, graph.edges), graph.ranks, line)


def read(path: Path) -> Graph:
    """The graph in `path`; raises PluginError or PatternError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise PluginError(f"{path}: larger than {MAX_BYTES >> 20} MiB; expected a pattern")
        text = plain_file.read_text(path)
    except OSError as error:
        expected = "expected a readable file with a pattern"
        raise PluginError(f"{path}: {error.strerror}; {expected}") from None
    except UnicodeDecodeError:
        raise PluginError(f"{path}: not text; expected {graph_file.EXPECTED}") from None
    return graph_file.read(text, str(path))
