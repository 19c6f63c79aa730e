"""Reads an application's pattern from a text: who talks to whom (MAPA, SC'21, section 3.1).

Three kinds, recognised by their contents:
- an edge list: `0 1` (or `0-1`, `0,1`) per line, `#` comments;
- the graphs NCCL writes (`NCCL_GRAPH_DUMP_FILE`): its rings and trees, all channels together;
- NVLink traffic counters before and after a run (`policies.patterns.traffic`).

Pure text to graph: the caller reads the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from gres_topology.errors import TopologyError
from gres_topology.readers import xmltree
from policies.errors import PatternError
from policies.patterns import traffic
from policies.patterns.pattern import PATTERNS, Edge

#: No node has more GPUs.
MOST_RANKS = 256
EXPECTED = "an edge list, an NCCL graph XML, or NVLink counters before and after a run"

_PAIR = re.compile(r"(\d{1,9})(?:-|\s*,\s*|\s+)(\d{1,9})")
#: NCCL's numbers for the graphs it searches (NCCL_TOPO_PATTERN_*): those of its intra-node
#: trees are chains in the order of the channel. NVLS and CollNet run through switches.
_NCCL_RING, _NCCL_TREES = "4", ("1", "2", "3")


@dataclass(frozen=True, slots=True)
class Graph:
    """A connected graph over the ranks 0..ranks-1; `kind` says what it was read from.

    `labels` are the file's own numbers of the ranks (GPU numbers in NCCL's and nvidia-smi's
    output), ascending.
    """

    kind: str
    ranks: int
    edges: tuple[Edge, ...]
    labels: tuple[int, ...]


def read(text: str, source: str) -> Graph:
    """The graph in `text`; PatternError, one line that starts with `source`, if it is none."""
    first = next((line.strip() for line in text.lstrip("\ufeff").splitlines() if line.strip()), "")
    if not first:
        raise PatternError(f"{source}: empty; expected {EXPECTED}")
    if first.startswith("<"):
        kind, edges = "NCCL graph XML", _nccl(text, source)
    elif traffic.looks_like(text):
        kind, edges = "NVLink traffic", traffic.edges(text, source)
    else:
        return _graph("edge list", _edge_list(text, source), source, numbered=True)
    return _graph(kind, edges, source)


def same_as(graph: Graph) -> str | None:
    """The pattern of ours whose edges are the same, rank by rank."""
    edges = set(graph.edges)
    return next((name for name, p in PATTERNS.items() if set(p.edges(graph.ranks)) == edges), None)


def edge_list(graph: Graph) -> str:
    """The graph as an edge list that `read` understands."""
    labels = " ".join(map(str, graph.labels))
    lines = [f"# {graph.ranks} ranks, read from {graph.kind}; GPUs there: {labels}"]
    return "\n".join([*lines, *(f"{a} {b}" for a, b in graph.edges)])


def _edge_list(text: str, source: str) -> set[Edge]:
    seen: dict[Edge, int] = {}
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        said = line.partition("#")[0].strip()
        if not said:
            continue
        where = f"{source}:{number}"
        match = _PAIR.fullmatch(said)
        if match is None:
            shown = said if len(said) <= 40 else said[:37] + "..."
            problem = (
                f"{shown!r} is no edge; expected two ranks such as 0 1"
                if seen
                else (f"{shown!r}; expected {EXPECTED}")
            )
            raise PatternError(f"{where}: {problem}")
        a, b = sorted((int(match[1]), int(match[2])))
        if a == b:
            raise PatternError(f"{where}: rank {a} to itself; expected two different ranks")
        if (a, b) in seen:
            raise PatternError(f"{where}: edge {a}-{b} was given in line {seen[a, b]} already")
        seen[a, b] = number
    return set(seen)


def _nccl(text: str, source: str) -> set[Edge]:
    try:
        root = xmltree.parse(text, source)
    except TopologyError as error:
        raise PatternError(str(error)) from None
    graphs = [element for element in root.walk() if element.tag == "graph"]
    if root.tag != "graphs" or not graphs:
        mistaken = "the machine's topology, not a pattern: " if root.tag == "system" else ""
        raise PatternError(
            f"{source} line {root.line}: {mistaken}<{root.tag}>; expected <graphs> as NCCL writes"
            " them with NCCL_GRAPH_DUMP_FILE"
        )
    edges: set[Edge] = set()
    for graph in graphs:
        kind = graph.get("pattern")
        if kind != _NCCL_RING and kind not in _NCCL_TREES:
            continue
        for channel in (child for child in graph.children if child.tag == "channel"):
            gpus = [_gpu(child, source) for child in channel.children if child.tag == "gpu"]
            if len(set(gpus)) < len(gpus):
                raise PatternError(f"{source} line {channel.line}: a GPU twice in one channel")
            hops = [*pairwise(gpus)]
            # Where a ring leaves the node by a NIC, its ends do not meet here.
            if kind == _NCCL_RING and not any(child.tag == "net" for child in channel.children):
                hops += [(gpus[-1], gpus[0])] if len(gpus) > 2 else []
            edges.update((min(hop), max(hop)) for hop in hops)
    return edges


def _gpu(element: xmltree.Element, source: str) -> int:
    text = element.get("dev")
    if not re.fullmatch(r"\d{1,4}", text):
        raise PatternError(f"{source} line {element.line}: gpu dev={text!r}; expected a number")
    return int(text)


def _graph(kind: str, edges: set[Edge], source: str, *, numbered: bool = False) -> Graph:
    """The graph of these edges. Its labels become ranks from 0 on, or are ranks (`numbered`)."""
    import networkx as nx  # not before: an engine that reads no such file starts sooner

    if not edges:
        raise PatternError(f"{source}: no two GPUs talk to each other; expected {EXPECTED}")
    labels = sorted({rank for edge in edges for rank in edge})
    if numbered and labels[-1] >= MOST_RANKS:
        raise PatternError(
            f"{source}: rank {labels[-1]}; expected ranks from 0 to {MOST_RANKS - 1}"
        )
    if numbered:
        labels = list(range(labels[-1] + 1))
    if len(labels) > MOST_RANKS:
        raise PatternError(f"{source}: {len(labels)} ranks; expected at most {MOST_RANKS}")
    rank = {label: at for at, label in enumerate(labels)}
    renumbered = tuple(sorted((rank[a], rank[b]) for a, b in edges))
    graph = nx.Graph(renumbered)
    graph.add_nodes_from(range(len(labels)))
    alone = sorted(set(graph) - nx.node_connected_component(graph, 0))
    if alone:
        shown = ", ".join(str(labels[at]) for at in alone[:8])
        unseen = " (traffic over PCIe is not counted)" if kind == "NVLink traffic" else ""
        raise PatternError(
            f"{source}: disconnected: no path from {labels[0]} to {shown}{unseen};"
            " expected one graph in which every rank can be reached"
        )
    return Graph(kind, len(labels), renumbered, tuple(labels))
