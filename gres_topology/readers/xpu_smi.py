"""Reads `xpu-smi topology -m` (or xpumcli's) of Intel's Max, Flex and Arc Pro series.

Columns stand between bars, as in the user guide, or blanks, as newer releases print them.

The matrix is of tiles (`GPU 0/1`: tile 1 of GPU 0), a GPU is what Slurm counts (gpu/oneapi counts
devices): the lanes of Xe Link between any tiles of two GPUs are added up. `xpu-smi discovery`
in the same text, as JSON or a table, tells models and PCI addresses. Symbols as in XPU Manager's
user guide.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gres_topology import cpulist, links, pci
from gres_topology.errors import TopologyError
from gres_topology.matrix import bandwidths
from gres_topology.topology import SELF, NodeTopology

_HEADER = re.compile(r"^\s*((?:GPU \d+/\d+[\s|]*)+)(CPU Affinity)?[\s|]*$")
_TILE = re.compile(r"GPU (\d{1,3})/(\d{1,2})")
_ROW = re.compile(r"^\s*(GPU \d{1,3}/\d{1,2})(?:\s*\||\s+|$)(.*)$")
#: A line of discovery's table: `| 0         | Device Name: Intel(R) Arc(TM) Pro B60 Graphics |`.
_FOUND = re.compile(r"^\s*\|\s*(\d{0,3})\s*\| *(Device Name|PCI BDF Address): *(.*?)\s*\|\s*$")
_LANES = re.compile(r"XL([1-9]\d?)")
_EXPECTED = "S, MDF, XL<lanes>, XL*, PIX, PXB, PHB, NODE or SYS"
#: Nearest first; `XL*`: over another tile, which has lanes of its own.
_PATHS = (*links.PCIE_SHARE, "XL*")
_MOST_LANES = 99

Tile = tuple[int, int]


@dataclass
class _Matrix:
    """Cells between tiles, the line of each row, and each GPU's CPUs."""

    source: str
    tiles: list[Tile]
    cells: dict[tuple[Tile, Tile], str] = field(default_factory=dict)
    lines: dict[Tile, int] = field(default_factory=dict)
    cpus: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def error(self, line: int, what: str) -> TopologyError:
        return TopologyError(f"{self.source} line {line}: {what}")


def looks_like(text: str) -> bool:
    """Whether the text has this matrix's header."""
    return any(_HEADER.match(line) for line in text.splitlines())


def read(text: str, *, name: str, source: str) -> NodeTopology:
    """NodeTopology from the output of `xpu-smi topology -m`; TopologyError naming the line."""
    matrix = _read_matrix(text, source)
    gpus = sorted({gpu for gpu, _ in matrix.tiles})
    kinds = tuple(tuple(_label(matrix, a, b) for b in gpus) for a in gpus)
    found = _discovered(text, source)
    models = {str(found[gpu].get("device_name")) for gpu in gpus if gpu in found}
    model = models.pop() if len(models) == 1 else None
    places = sorted({matrix.cpus[gpu] for gpu in gpus if matrix.cpus.get(gpu)})
    return NodeTopology(
        name=name,
        source=f"xpu-smi topology -m: {source}",
        kinds=kinds,
        bandwidth_gbps=bandwidths(kinds, links.rates_of_model(model)),
        # GPUs of one socket share their CPUs; the tool names no NUMA nodes.
        numa=tuple(places.index(cpus) if (cpus := matrix.cpus.get(g)) else None for g in gpus),
        cpus=tuple(matrix.cpus.get(gpu) for gpu in gpus),
        pci=tuple(pci.normalise(str(found.get(g, {}).get("pci_bdf_address"))) for g in gpus),
        model=model,
    )


def _read_matrix(text: str, source: str) -> _Matrix:
    matrix: _Matrix | None = None
    for number, line in enumerate(text.split("\n"), 1):
        header, row = _HEADER.match(line), _ROW.match(line)
        if header and matrix is not None and (header[2] or header[1].count("GPU") > 1):
            raise matrix.error(number, "a second matrix begins; expected the output of one node")
        if header and matrix is None:
            tiles = [(int(gpu), int(tile)) for gpu, tile in _TILE.findall(header[1])]
            matrix = _Matrix(source, tiles)
            if len(set(tiles)) < len(tiles):
                raise matrix.error(number, "a tile is named twice; expected each once")
        elif row and matrix is not None:
            _read_row(matrix, row[1], row[2], number)
    if matrix is None:
        raise TopologyError(f"{source}: no header line of GPU 0/0; expected xpu-smi topology -m")
    missing = [tile for tile in matrix.tiles if tile not in matrix.lines]
    if missing:
        last = max(matrix.lines.values(), default=1)
        raise matrix.error(
            last,
            f"no row for {_name(missing[0])} behind it; expected one for each column"
            " (is the file truncated?)",
        )
    return matrix


def _read_row(matrix: _Matrix, name: str, rest: str, number: int) -> None:
    gpu, index = _TILE.findall(name)[0]
    tile = int(gpu), int(index)
    if tile not in matrix.tiles or tile in matrix.lines:
        raise matrix.error(number, f"row {name} is no column of the header, or is there twice")
    matrix.lines[tile] = number
    if "|" in rest:
        words = [word.strip() for word in rest.split("|")]
    else:
        words = re.sub(r",\s+", ",", rest).split()
    if len(words) < len(matrix.tiles):
        raise matrix.error(number, f"{len(words)} cells; expected {len(matrix.tiles)}")
    for other, word in zip(matrix.tiles, words, strict=False):
        if not (word in ("S", "MDF", *_PATHS) or _LANES.fullmatch(word)):
            cell = f"cell {name}-{_name(other)}"
            raise matrix.error(number, f"{cell}: '{word[:20]}'; expected {_EXPECTED}")
        if (word == "S") != (tile == other) or (word == "MDF") != (
            tile[0] == other[0] and tile != other
        ):
            cell = f"cell {name}-{_name(other)}"
            raise matrix.error(number, f"{cell}: '{word}' of these two; expected {_EXPECTED}")
        matrix.cells[tile, other] = word
    if len(words) > len(matrix.tiles) and words[len(matrix.tiles)]:
        try:
            matrix.cpus[tile[0]] = cpulist.parse_list(words[len(matrix.tiles)])
        except ValueError as error:
            raise matrix.error(number, f"CPU Affinity: {error}") from None


def _name(tile: Tile) -> str:
    return f"GPU {tile[0]}/{tile[1]}"


def _label(matrix: _Matrix, a: int, b: int) -> str:
    """What joins two GPUs: all lanes between their tiles, else the nearest path."""
    if a == b:
        return SELF
    pairs = [(x, y) for x in matrix.tiles for y in matrix.tiles if (x[0], y[0]) == (a, b)]
    for pair in pairs:
        here, there = matrix.cells[pair], matrix.cells[pair[::-1]]
        if here != there:
            raise matrix.error(
                matrix.lines[pair[0]],
                f"cell {_name(pair[0])}-{_name(pair[1])} is {here} but {there} in line"
                f" {matrix.lines[pair[1]]}; expected a symmetric matrix",
            )
    words = {pair: matrix.cells[pair] for pair in pairs}
    lanes = sum(int(m[1]) for word in words.values() if (m := _LANES.fullmatch(word)))
    if lanes:
        return f"XL{min(lanes, _MOST_LANES)}"
    nearest = min(words.values(), key=_PATHS.index)
    return links.UNKNOWN if nearest == "XL*" else nearest


def _discovered(text: str, source: str) -> Mapping[int, Mapping[str, Any]]:
    """What `xpu-smi discovery` says of each GPU, by its number; TopologyError for half of it."""
    table: dict[int, dict[str, str]] = {}
    number: int | None = None
    for line in text.split("\n"):
        if found := _FOUND.match(line):
            number = int(found[1]) if found[1] else number
            if number is not None:
                key = "device_name" if found[2] == "Device Name" else "pci_bdf_address"
                table.setdefault(number, {})[key] = found[3]
    at = re.search(r"\{\s*\"device_list\"", text)
    if at is None:
        return table
    before = text.count("\n", 0, at.start())
    try:
        said, _ = json.JSONDecoder().raw_decode(text, at.start())
        return {int(device["device_id"]): device for device in said["device_list"]}
    except json.JSONDecodeError as error:
        raise TopologyError(
            f"{source} line {error.lineno}: {error.msg};"
            " expected whole JSON of xpu-smi discovery -j"
        ) from None
    except (KeyError, TypeError, ValueError, RecursionError):
        raise TopologyError(
            f"{source} line {before + 1}: no list of devices; expected xpu-smi discovery -j"
        ) from None
