"""Reads `rocm-smi --showtopo`: weights, hops, link types, NUMA nodes; any may be missing.

`amd-smi topology` prints the same tables as text, with PCI addresses for GPUs.

The sections are told apart by what is in them where their titles are missing or wrong
(rocm-smi prints the title of a section it could not read and then the next table). With
`--showbus` and `--showproductname` in the same text, PCI addresses and the model are taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from gres_topology import links, pci
from gres_topology.errors import TopologyError
from gres_topology.matrix import Cells, Kinds
from gres_topology.readers.amd import kfd
from gres_topology.topology import NodeTopology

_TITLE = re.compile(r"^\s*=+ *([^=]*?) *=+\s*$|^\s*([A-Z][A-Z -]{0,60} TABLE):\s*$")
#: What rocm-smi calls a GPU, and what amd-smi does.
_NAME = r"(?:GPU\d{1,4}|[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_HEADER = re.compile(rf"^\s*{_NAME}(\s+{_NAME})*\s*$", re.ASCII)
_ROW = re.compile(rf"^\s*({_NAME})\s+(\S.*?)\s*$", re.ASCII)
_FACT = re.compile(r"^\s*GPU(?:\[| )(\d{1,4})\]?\s*:\s*(?:\([^)]*\)\s*)?([^:]+?)\s*:\s*(.*?)\s*$")
#: A title of the report, a fact of a GPU, or a row of a table; a machine in YAML may say XGMI, too.
_MARK = re.compile(
    r"ROCm System Management|between two GPUs|\(Topology\) Numa|^[ \t]*LINK TYPE TABLE:"
    r"|^[ \t]*GPU\d{1,4}[ \t].*\bXGMI\b",
    re.MULTILINE,
)
_TYPES = {"XGMI", "PCIE", "XXXX", "N/A"}


@dataclass
class SmiTable:
    """One square table of the report: title, header line, rows of (line, cells)."""

    title: str
    line: int
    gpus: list[str]
    rows: dict[str, tuple[int, list[str]]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """`type`, `weight`, `hops` or `other`: by content, then by title."""
        words = {word for _, row in self.rows.values() for word in row}
        if words & {"XGMI", "PCIE"}:
            return "type"
        title = self.title.lower()
        for part, kind in (("type", "type"), ("weight", "weight"), ("hops", "hops")):
            if part in title:
                return kind
        return "other"


def read(text: str, *, name: str, source: str) -> NodeTopology:
    """NodeTopology from the output of `rocm-smi --showtopo`.

    Raises TopologyError naming line and cell, or saying that the report was cut off.
    """
    lines = text.split("\n")
    tables = {table.kind: table for table in _tables(lines, source)}
    if "ROCm System Management" in text and "End of ROCm SMI" not in text:
        raise TopologyError(
            f"{source} line {len(lines)}: the report ends before 'End of ROCm SMI Log';"
            " expected the whole output of rocm-smi --showtopo"
        )
    gpus, kinds, hops = _kinds(tables, source)
    facts = _facts(lines, gpus, source)
    model = next((facts[gpu]["model"] for gpu in gpus if "model" in facts[gpu]), None)
    return NodeTopology(
        name=name,
        source=f"{'amd-smi topology' if ':' in gpus[0] else 'rocm-smi --showtopo'}: {source}",
        kinds=kinds,
        bandwidth_gbps=kfd.bandwidth(kinds, model, hops),
        numa=tuple(
            kfd.numa_of(facts[gpu].get("numa_node"), facts[gpu].get("numa_affinity"))
            for gpu in gpus
        ),
        cpus=(None,) * len(gpus),
        pci=tuple(pci.normalise(facts[gpu].get("pci", gpu)) for gpu in gpus),
        model=model,
    )


def looks_like(text: str) -> bool:
    """Whether the text is a report of rocm-smi."""
    return _MARK.search(text) is not None


def _tables(lines: list[str], source: str) -> list[SmiTable]:
    tables: list[SmiTable] = []
    title, is_open = "", False
    for number, line in enumerate(lines, 1):
        heading = _TITLE.match(line)
        row = _ROW.match(line)
        if heading:
            title, is_open = heading.group(1) or heading.group(2) or "", False
        elif _HEADER.match(line):
            tables.append(SmiTable(title, number, line.split()))
            is_open = True
        elif is_open and row:
            table = tables[-1]
            if row.group(1) in table.rows or row.group(1) not in table.gpus:
                raise TopologyError(
                    f"{source} line {number}: row {row.group(1)} is unknown or repeated;"
                    f" expected each of {', '.join(table.gpus)} once"
                )
            table.rows[row.group(1)] = (number, row.group(2).split())
        elif line.strip():
            is_open = False
    for table in tables:
        _check_whole(table, source)
    _check_once(tables, source)
    return tables


def _check_whole(table: SmiTable, source: str) -> None:
    last = max([number for number, _ in table.rows.values()], default=table.line)
    for gpu in table.gpus:
        if gpu not in table.rows:
            raise TopologyError(
                f"{source} line {last}: no row for {gpu}, cell {gpu}-{table.gpus[0]} is missing;"
                " expected one row per column of the header (is the file truncated?)"
            )
        number, cells = table.rows[gpu]
        if len(cells) != len(table.gpus):
            column = table.gpus[min(len(cells), len(table.gpus) - 1)]
            raise TopologyError(
                f"{source} line {number}, cell {gpu}-{column}: {len(cells)} cells in the row;"
                f" expected {len(table.gpus)}"
            )


def _check_once(tables: list[SmiTable], source: str) -> None:
    seen: dict[str, SmiTable] = {}
    for table in tables:
        if len(set(table.gpus)) < len(table.gpus):
            raise TopologyError(f"{source} line {table.line}: a GPU is named twice in the header")
        if table.kind != "other" and table.kind in seen:
            raise TopologyError(
                f"{source} line {table.line}: a second table of {table.kind};"
                " expected the report of one node"
            )
        if seen and set(table.gpus) != set(next(iter(seen.values())).gpus):
            raise TopologyError(
                f"{source} line {table.line}: GPUs {', '.join(table.gpus)};"
                " expected the same GPUs in every table"
            )
        seen[table.kind] = table


def _kinds(
    tables: dict[str, SmiTable], source: str
) -> tuple[list[str], Kinds, Callable[[int, int], int]]:
    """GPUs in numeric order, their labels, and the hops between two of them."""
    numbers = {k: _numbers(tables[k], source) for k in ("weight", "hops") if k in tables}
    table = tables.get("type") or tables.get("weight")
    if table is None:
        raise TopologyError(
            f"{source}: neither a table of link types nor of weights between GPUs;"
            " expected the output of rocm-smi --showtopo, as text"
        )
    gpus = sorted(table.gpus, key=_place)
    cells = Cells(source, "0, XGMI, PCIE or XXXX")
    for a in table.gpus:
        line, row = table.rows[a]
        for b, word in zip(table.gpus, row, strict=True):
            cells.put(a, b, _label(table.kind, a == b, word, cells, line, (a, b)), line)
    cells.check_symmetric(table.gpus, table.gpus)

    def hops(i: int, j: int) -> int:
        pair = (gpus[i], gpus[j])
        weight = numbers["weight"][pair] if "weight" in numbers else 0
        stated = numbers["hops"][pair] if "hops" in numbers else None
        return kfd.hops_of(cells.label(*pair), weight, stated)

    return gpus, cells.kinds(gpus), hops


def _place(gpu: str) -> tuple[int, str]:
    """Its number; amd-smi numbers GPUs by their addresses."""
    return (int(gpu[3:]), "") if gpu.startswith("GPU") else (0, pci.normalise(gpu) or gpu)


def _label(
    kind: str, is_self: bool, word: str, cells: Cells, line: int, at: tuple[str, str]
) -> str:
    """The link label of a cell of the type table, or of a weight where types are missing."""
    if kind == "weight":
        return "X" if is_self else kfd.label_of(int(word))
    if is_self and word in {"0", "SELF"}:
        return "X"
    if is_self or word not in _TYPES:
        wanted = "0 on the diagonal" if is_self else "XGMI, PCIE or XXXX"
        raise cells.error(line, *at, f"'{word}' is not a link; expected {wanted}")
    return links.UNKNOWN if word == "XXXX" else word


def _numbers(table: SmiTable, source: str) -> dict[tuple[str, str], int]:
    result: dict[tuple[str, str], int] = {}
    for a in table.gpus:
        line, row = table.rows[a]
        for b, word in zip(table.gpus, row, strict=True):
            if not (word.isascii() and word.isdigit() and len(word) < 9):
                raise TopologyError(
                    f"{source} line {line}, cell {a}-{b}: '{word}' is not a number;"
                    f" expected {table.kind} as a number"
                )
            if a == b and int(word) != 0:
                raise TopologyError(
                    f"{source} line {line}, cell {a}-{b}: is {word}; expected 0 on the diagonal"
                )
            if result.get((b, a), int(word)) != int(word):
                raise TopologyError(
                    f"{source} line {line}, cell {a}-{b}: is {word} but {b}-{a} is"
                    f" {result[b, a]}; expected a symmetric matrix"
                )
            result[a, b] = int(word)
    return result


def _facts(lines: list[str], gpus: list[str], source: str) -> dict[str, dict[str, str]]:
    """Per GPU what the `GPU[n] : name: value` lines say, under our own names."""
    names = {
        "numa node": "numa_node",
        "numa affinity": "numa_affinity",
        "pci bus": "pci",
        "card series": "model",
    }
    facts: dict[str, dict[str, str]] = {gpu: {} for gpu in gpus}
    for number, line in enumerate(lines, 1):
        match = _FACT.match(line)
        key = names.get(match.group(2).lower()) if match else None
        if match is None or key is None:
            continue
        gpu, value = f"GPU{match.group(1)}", match.group(3)
        if gpu not in facts:
            raise TopologyError(
                f"{source} line {number}: {gpu} is in no table; expected one of {', '.join(gpus)}"
            )
        if key.startswith("numa") and not re.fullmatch(r"-?[0-9]{1,6}|N/A|Not supported.*", value):
            raise TopologyError(
                f"{source} line {number}, cell {gpu}-NUMA: '{value}' is not a NUMA node;"
                " expected a number"
            )
        if value and value != "N/A":
            facts[gpu][key] = value
    known = [gpu for gpu in gpus if any(key.startswith("numa") for key in facts[gpu])]
    if 0 < len(known) < len(gpus):
        lost = next(gpu for gpu in gpus if gpu not in known)
        raise TopologyError(
            f"{source} line {len(lines)}, cell {lost}-NUMA: missing;"
            " expected a NUMA node for every GPU or none (is the file truncated?)"
        )
    return facts
