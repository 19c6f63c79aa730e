"""Reads `numactl --hardware`: NUMA nodes with CPUs, memory and distances.

It knows no GPUs: `read` gives a topology of none, `merge_numa` adds what it says to one that
another tool reported.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np

from gres_topology import cpulist
from gres_topology.errors import TopologyError
from gres_topology.topology import NodeTopology, NumaNode

_AVAILABLE = re.compile(r"^\s*available: ([0-9]{1,5}) nodes? \(([0-9,-]*)\)\s*$")
_CPUS = re.compile(r"^\s*node ([0-9]{1,5}) cpus:((?: +[0-9]{1,5})*)\s*$")
_MEMORY = re.compile(
    r"^\s*node ([0-9]{1,5}) (size|free): ([0-9]{1,12}|<not available>)(?: MB)?\s*$"
)
_ROW = re.compile(r"^\s*([0-9]{1,5}):((?: +[0-9]{1,5})+)\s*$")


def read(text: str, *, name: str, source: str) -> NodeTopology:
    """A topology of no GPUs with the NUMA nodes of `numactl --hardware`.

    Raises TopologyError naming the line.
    """
    return NodeTopology(
        name=name,
        source=f"numactl --hardware: {source}",
        kinds=(),
        bandwidth_gbps=np.zeros((0, 0)),
        numa=(),
        cpus=(),
        numa_nodes=numa_nodes(text, source),
    )


def merge_numa(topology: NodeTopology, text: str, *, source: str = "numactl") -> NodeTopology:
    """The topology with the NUMA nodes of `numactl --hardware` and what follows from them.

    A GPU of known NUMA node gets that node's CPUs where it had none; a GPU of known CPUs
    that lie in one node gets that node. Raises TopologyError where the two contradict.
    """
    nodes = {node.number: node for node in numa_nodes(text, source)}
    numa, cpus = list(topology.numa), list(topology.cpus)
    for gpu in range(topology.gpus):
        of_cpus = _node_of(cpus[gpu], nodes)
        wanted = numa[gpu]
        if wanted is not None and wanted not in nodes:
            raise TopologyError(
                f"{source}: no NUMA node {wanted}, where {topology.name} has GPU{gpu};"
                f" expected both reports from one node (it has {sorted(nodes)})"
            )
        own = set(cpus[gpu] or ())
        there = set() if wanted is None else set(nodes[wanted].cpus)
        if own and there and own.isdisjoint(there):
            raise TopologyError(
                f"{source}: NUMA node {wanted} has CPUs {cpulist.format_list(there)}, where"
                f" {topology.name} has {cpulist.format_list(own)} for GPU{gpu}; expected both"
                " reports from one node"
            )
        numa[gpu] = of_cpus if wanted is None else wanted
        node = numa[gpu]
        if cpus[gpu] is None and node is not None:
            cpus[gpu] = nodes[node].cpus or None
    return dataclasses.replace(
        topology,
        numa=tuple(numa),
        cpus=tuple(cpus),
        numa_nodes=tuple(nodes[number] for number in sorted(nodes)),
    )


def looks_like(text: str) -> bool:
    """Whether the text is a report of `numactl --hardware`."""
    return any(_AVAILABLE.match(line) for line in text.splitlines())


def numa_nodes(text: str, source: str) -> tuple[NumaNode, ...]:
    """The NUMA nodes, in numeric order. TopologyError naming the line."""
    numbers: list[int] = []
    cpus: dict[int, tuple[int, ...]] = {}
    memory: dict[int, int] = {}
    columns: list[int] = []
    rows: dict[int, tuple[int, ...]] = {}
    in_distances = False
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if match := _AVAILABLE.match(line):
            numbers = _numbers(match, number, source)
        elif match := _CPUS.match(line):
            cpus[int(match.group(1))] = tuple(map(int, match.group(2).split()))
        elif match := _MEMORY.match(line):
            if match.group(2) == "size" and match.group(3).isdigit():
                memory[int(match.group(1))] = int(match.group(3))
        elif re.match(r"\s*node distances:", line):
            in_distances = True
        elif in_distances and re.match(r"\s*node( +[0-9]{1,5})+\s*$", line):
            columns = list(map(int, line.split()[1:]))
        elif in_distances and (match := _ROW.match(line)):
            rows[int(match.group(1))] = _row(match, columns, number, source)
        elif numbers and line.strip().startswith("node ") and "No distance" not in line:
            raise TopologyError(
                f"{source} line {number}: '{line.strip()[:60]}'; expected 'node N cpus: ...',"
                " 'node N size: M MB' or node distances"
            )
    _check(numbers, cpus, columns, rows, text, len(lines), source)
    return tuple(
        NumaNode(n, cpus[n], memory.get(n), tuple(zip(columns, rows.get(n, ()), strict=False)))
        for n in sorted(numbers)
    )


def _numbers(match: re.Match[str], line: int, source: str) -> list[int]:
    if not match.group(2):
        raise TopologyError(
            f"{source} line {line}: no NUMA nodes, as in a container that may not see them;"
            " expected numactl --hardware of the node itself"
        )
    try:
        numbers = list(cpulist.parse_list(match.group(2)))
    except ValueError as error:
        raise TopologyError(f"{source} line {line}: {error}") from None
    if len(numbers) != int(match.group(1)):
        raise TopologyError(
            f"{source} line {line}: {match.group(1)} nodes but {len(numbers)} numbers"
        )
    return numbers


def _row(match: re.Match[str], columns: list[int], line: int, source: str) -> tuple[int, ...]:
    values = tuple(map(int, match.group(2).split()))
    if len(values) != len(columns) or int(match.group(1)) not in columns:
        raise TopologyError(
            f"{source} line {line}, cell {match.group(1)}-{columns[-1] if columns else '?'}:"
            f" {len(values)} distances; expected {len(columns)}"
        )
    return values


def _check(
    numbers: list[int],
    cpus: dict[int, tuple[int, ...]],
    columns: list[int],
    rows: dict[int, tuple[int, ...]],
    text: str,
    last: int,
    source: str,
) -> None:
    if not numbers:
        raise TopologyError(f"{source}: no line 'available: N nodes'; expected numactl --hardware")
    lost = [n for n in numbers if n not in cpus]
    if not lost and "No distance" not in text:
        lost = [n for n in numbers if n not in rows]
    if lost:
        raise TopologyError(
            f"{source} line {last}: node {lost[0]} has no CPUs or distances;"
            " expected every node of the first line (is the file truncated?)"
        )
    if rows and set(columns) != set(rows):
        raise TopologyError(
            f"{source} line {last}: distances of nodes {sorted(rows)} to {sorted(columns)};"
            " expected the same nodes down and across"
        )
    for a in rows:
        for b in rows:
            there, back = rows[a][columns.index(b)], rows[b][columns.index(a)]
            if there != back:
                raise TopologyError(
                    f"{source} line {last}, cell {a}-{b}: distance {there} but {back} the other"
                    " way; expected a symmetric matrix"
                )


def _node_of(cpus: tuple[int, ...] | None, nodes: dict[int, NumaNode]) -> int | None:
    """The one node that holds all these CPUs; None if they span several."""
    holding = [n for n, node in nodes.items() if cpus and set(cpus) <= set(node.cpus)]
    return holding[0] if len(holding) == 1 else None
