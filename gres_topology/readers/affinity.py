"""The columns behind the links of `nvidia-smi topo -m`: CPU Affinity, NUMA Affinity, GPU NUMA ID.

Cells there may be empty (a Slurm step that sees none of the GPU's CPUs), and neither tabs
nor columns say reliably which one is: drivers pad with one or two tabs. So a full row is
read in order, and an emptier one by how far behind the links its first value stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gres_topology import cpulist
from gres_topology.errors import TopologyError

_TITLES = {
    "cpuaffinity": "CPU Affinity",
    "numaaffinity": "NUMA Affinity",
    "gpunumaid": "GPU NUMA ID",
}


@dataclass(frozen=True, slots=True)
class Locality:
    """Where one GPU sits: its NUMA node and CPUs, None where not said."""

    numa: int | None = None
    cpus: tuple[int, ...] | None = None


def read(
    columns: Sequence[str], rows: Mapping[str, tuple[int, str]], source: str
) -> dict[str, Locality]:
    """Row name -> Locality, from (line, what stands behind the links) of each row.

    `columns` are the header's names in order, lower case without blanks. GPU NUMA ID (the
    node of the GPU's own memory) is checked and dropped. TopologyError names line and cell.
    """
    split = {row: re.sub(r",\s+", ",", rest).split() for row, (_, rest) in rows.items()}
    for row, values in split.items():
        if len(values) > len(columns):
            raise TopologyError(
                f"{source} line {rows[row][0]}: {len(values)} values behind the links of {row}"
                f" ({' '.join(values)}); expected at most {len(columns)} as in the header"
            )
    full = [_gap(rows[row][1]) for row, values in split.items() if len(values) == len(columns) > 0]
    usual = (max(g[0] for g in full), max(g[1] for g in full)) if full else (1, 4)
    result = {}
    for row, values in split.items():
        line, rest = rows[row]
        by_column = _assign(columns, values, _is_further(_gap(rest), usual))
        result[row] = _locality(row, line, by_column, source)
    return result


def _gap(rest: str) -> tuple[int, int]:
    """(tabs, other blanks) before the first value."""
    blank = rest[: len(rest) - len(rest.lstrip())]
    return blank.count("\t"), len(blank) - blank.count("\t")


def _is_further(gap: tuple[int, int], usual: tuple[int, int]) -> bool:
    """Whether a value starts a column later than the first values of full rows do."""
    return gap[0] > usual[0] if gap[0] else gap[1] > usual[1] + 4


def _assign(columns: Sequence[str], values: list[str], is_first_blank: bool) -> dict[str, str]:
    if len(values) < len(columns) and columns[0] == "cpuaffinity" and is_first_blank:
        columns = columns[1:]
    if len(values) < len(columns) and values and values[-1] == "N/A" and "gpunumaid" in columns:
        # Only the last column is never empty: it says N/A unless the GPU is a NUMA node.
        return {**dict(zip(columns, values[:-1], strict=False)), "gpunumaid": "N/A"}
    return dict(zip(columns, values, strict=False))


def _locality(row: str, line: int, by_column: Mapping[str, str], source: str) -> Locality:
    lists: dict[str, tuple[int, ...] | None] = {}
    for column, text in by_column.items():
        try:
            lists[column] = None if text.upper() == "N/A" else cpulist.parse_list(text)
        except ValueError as error:
            raise TopologyError(
                f"{source} line {line}, cell {row}-{_TITLES[column]}: {error};"
                " expected numbers, ranges or N/A"
            ) from None
    numa = lists.get("numaaffinity")
    return Locality(numa[0] if numa else None, lists.get("cpuaffinity"))
