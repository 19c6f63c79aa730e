"""Reads `nvidia-smi topo -m`, as printed by any driver.

The table is found inside whatever surrounds it (comments, other tables of nvidia-smi). Columns
are matched to rows by name, never by position, so NIC columns may come in any order. What
nvidia-smi knows is kept; what it does not know (PCI addresses, minors) stays None. Models are
taken from `nvidia-smi -L` lines where the text has them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gres_topology import links, pci
from gres_topology.errors import TopologyError
from gres_topology.matrix import Cells, bandwidths
from gres_topology.readers import affinity
from gres_topology.topology import Nic, NodeTopology

_AFFINITY = re.compile(r"(CPU *Affinity|NUMA *Affinity|GPU *NUMA *ID)", re.IGNORECASE)
#: Where a header that lost its blanks can be cut: before the next device or column name.
_SEAM = re.compile(r"(?<=\w)(?=GPU\d|NIC\d|mlx\d|hfi\d|CPU ?Affinity|NUMA ?Affinity|GPU ?NUMA)")
#: A cell at which a terminal wrapped the line: the blanks before the next one are lost. No label
#: begins like the end of another, so it can be told what they were.
_LABEL = re.compile(r"NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|X|N/A", re.ASCII)
_GLUED = re.compile(rf"(?:{_LABEL.pattern}){{2,}}", re.ASCII)
_GPU = re.compile(r"GPU\d{1,4}", re.ASCII)
#: An entry of the legend; `topo -mp` has all that are paths, and `topo -m` the one of NVLinks, too.
_LEGEND = re.compile(r"^\s*(SYS|NODE|PHB|PXB|PIX|NV#) +=", re.MULTILINE)
_PATHS = {"SYS", "NODE", "PHB", "PXB", "PIX"}
_PATHS_ALONE = re.compile(r"nvidia-smi +topo +(?:-mp\b|--matrix_pci\b)")
#: Columns that are no NICs: drives (`topo -nvme`), CPUs, NICs' other functions for direct data.
_NO_NIC = re.compile(r"(?:NVME|CPU|DD)\d{0,4}", re.IGNORECASE | re.ASCII)
_P2P = {"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"}
_MODEL = re.compile(r"GPU (\d+): (.+?) \(UUID: ")
_NIC_LEGEND = re.compile(r"^\s*NIC Legend", re.IGNORECASE | re.MULTILINE)
_NIC_NAME = re.compile(r"^\s*(NIC\d+)\s*[:=]\s*(\S+)(?:[ \t].*)?$", re.MULTILINE)


@dataclass
class MatrixBlock:
    """One matrix in the text: its header and the rows below it, with line numbers."""

    header_line: int
    devices: list[str]
    columns: list[str]
    rows: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def gpus(self) -> list[str]:
        """The GPU columns in numeric order."""
        names = [name for name in self.devices if _GPU.fullmatch(name)]
        return sorted(names, key=lambda name: int(name[3:]))

    @property
    def is_p2p(self) -> bool:
        """Whether this is a capability matrix (`topo -p2p`), not links."""
        words = {word for _, row in self.rows.values() for word in row.split()[1:]}
        return bool(words & _P2P) and words <= _P2P | {"X"}


def read(text: str, *, name: str, source: str) -> NodeTopology:
    """NodeTopology from the output of `nvidia-smi topo -m`.

    `source` is the file's name, for errors. Raises TopologyError naming line and cell.
    """
    block = _matrix(text, source)
    _check_nvlinks(text, source)
    cells = Cells(source)
    trailing = {row: _read_row(block, row, cells, source) for row in block.rows}
    _check_complete(block, source)
    cells.check_symmetric(block.devices, block.devices)
    where = affinity.read(block.columns, trailing, source)
    gpus = block.gpus
    kinds = cells.kinds(gpus)
    model = _model(text)
    rates = links.rates_of_model(model)
    if model is None and re.search(r"\bSOC\b", text):
        rates = links.rates(nvlink=1, pcie=3)  # the label died with the driver before NVLink 2
    local = [where[gpu] for gpu in gpus]
    return NodeTopology(
        name=name,
        source=f"nvidia-smi topo -m: {source}",
        kinds=kinds,
        bandwidth_gbps=bandwidths(kinds, rates),
        numa=tuple(place.numa for place in local),
        cpus=tuple(place.cpus for place in local),
        model=model,
        nics=_nics(text, block, cells, source),
    )


def looks_like(text: str) -> bool:
    """Whether the text has a header line of this format."""
    return any(_header(line, i) for i, line in enumerate(text.splitlines(), 1))


def _header(line: str, number: int) -> MatrixBlock | None:
    """The block that a header line opens, or None if the line is no header."""
    start = line.find("GPU")
    if start < 0 or re.search(r"^\s*#|[=|(){}]", line):
        return None
    text = _SEAM.sub(" ", line[start:])
    pieces = _AFFINITY.split(text)
    words = pieces[0].split()
    columns = ["".join(piece.lower().split()) for piece in pieces[1::2]]
    if any(piece.strip() for piece in pieces[2::2]):
        return None
    if not words or not all(re.fullmatch(r"[A-Za-z][\w.:-]*", word) for word in words):
        return None
    if not _GPU.fullmatch(words[0]) or any(links.canonical(word) for word in words):
        return None
    if len(words) == 1 and not columns and line.strip() != words[0]:
        return None
    return MatrixBlock(number, words, columns)


def _blocks(text: str) -> list[MatrixBlock]:
    blocks: list[MatrixBlock] = []
    is_open = False
    for number, line in enumerate(text.split("\n"), 1):
        opened = _header(line, number)
        words = line.split()
        if opened:
            blocks.append(opened)
            is_open = True
        elif is_open and words and not _is_row(words, blocks[-1]):
            is_open = False
        elif is_open and words:
            _add_row(blocks[-1], words[0], number, line)
        elif blocks and blocks[-1].rows and _is_lost_row(words):
            # Of another matrix, whose header was not pasted.
            blocks.append(MatrixBlock(number, [], [], {words[0]: (number, line)}))
            is_open = True
    last = len(text.rstrip().split("\n"))

    def is_cut(block: MatrixBlock) -> bool:
        """Without rows, but with columns of `topo -m`, or as the last line: a report cut off."""
        return bool(block.columns) or (len(block.devices) > 1 and block.header_line == last)

    return [block for block in blocks if block.rows or is_cut(block)] or blocks[:1]


def _is_row(words: list[str], block: MatrixBlock) -> bool:
    return words[0] in block.devices or bool(_GPU.fullmatch(words[0]))


def _is_lost_row(words: list[str]) -> bool:
    is_labelled = len(words) > 2 and all(map(links.canonical, words[1:3]))
    return is_labelled and bool(_GPU.fullmatch(words[0]))


def _add_row(block: MatrixBlock, row: str, number: int, line: str) -> None:
    if row in block.rows:
        # A second row of that name is kept under an impossible name, and refused as unknown.
        row = f"{row} (again)"
    block.rows[row] = (number, line)


def _matrix(text: str, source: str) -> MatrixBlock:
    blocks = _blocks(text)
    matrices = [block for block in blocks if not block.is_p2p]
    alone = all(len(block.devices) == 1 and not block.columns for block in matrices)
    if blocks and (not matrices or (alone and "Status Ok" in text)):
        raise TopologyError(
            f"{source} line {blocks[0].header_line}: this is a peer-to-peer capability matrix"
            " (nvidia-smi topo -p2p), which says nothing about links;"
            " expected the output of nvidia-smi topo -m"
        )
    if not matrices:
        raise TopologyError(
            f"{source}: no header line naming GPU0; expected the output of nvidia-smi topo -m"
        )
    if len(matrices) > 1:
        raise TopologyError(
            f"{source} line {matrices[1].header_line}: a second matrix begins;"
            " expected the output of one node"
        )
    return matrices[0]


def check_command(text: str, source: str) -> None:
    """Refuses what a command in the text, as it was pasted, says to be `nvidia-smi topo -mp`."""
    if found := _PATHS_ALONE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise TopologyError(
            f"{source} line {line}: this is nvidia-smi topo -mp, which leaves NVLinks out;"
            " expected the output of nvidia-smi topo -m"
        )


def _check_nvlinks(text: str, source: str) -> None:
    """Refuses `nvidia-smi topo -mp`, which shows the PCI path of GPUs that NVLinks join.

    Its legend ends before them. Of other legends people may have taken out what they did not need.
    """
    entries = list(_LEGEND.finditer(text))
    if {entry[1] for entry in entries} == _PATHS:
        line = text.count("\n", 0, entries[-1].end()) + 1
        raise TopologyError(
            f"{source} line {line}: the legend has no NV#: this is nvidia-smi topo -mp, which"
            " leaves NVLinks out, or was cut off; expected the output of nvidia-smi topo -m"
        )


def _read_row(block: MatrixBlock, row: str, cells: Cells, source: str) -> tuple[int, str]:
    """Put a row's link cells; return its line and what stands behind them."""
    number, line = block.rows[row]
    if row not in block.devices:
        raise TopologyError(
            f"{source} line {number}: row {row} has no column in the header"
            f" (line {block.header_line}); expected one row for each of"
            f" {', '.join(block.devices)}"
        )
    rest = re.sub(r"^\s*\S+", "", line, count=1)
    words: list[str] = []
    for column in block.devices:
        if not words and (match := re.match(r"\s*(\S+)", rest)):
            words, rest = _split(match[1]), rest[match.end() :]
        if not words:
            raise cells.error(
                number, row, column, f"missing; expected {len(block.devices)} links in the row"
            )
        cells.put(row, column, words.pop(0), number)
    rest = " ".join(words) + rest
    if rest.strip() and not _GPU.fullmatch(row):
        raise TopologyError(
            f"{source} line {number}: '{rest.strip()}' behind the links of {row};"
            " expected nothing there"
        )
    return number, rest


def _split(cell: str) -> list[str]:
    """The labels of a cell, of several where they lost the blanks between them."""
    is_glued = links.canonical(cell) is None and _GLUED.fullmatch(cell)
    return _LABEL.findall(cell) if is_glued else [cell]


def _check_complete(block: MatrixBlock, source: str) -> None:
    """Every GPU needs its row; NIC rows may be cut off only all together."""
    nics = [name for name in block.devices if not _GPU.fullmatch(name)]
    wanted = block.devices if any(nic in block.rows for nic in nics) else block.gpus
    if len(set(block.devices)) < len(block.devices):
        raise TopologyError(
            f"{source} line {block.header_line}: a device is named twice in the header;"
            " expected each once"
        )
    for name in wanted:
        if name not in block.rows:
            last = max([number for number, _ in block.rows.values()], default=block.header_line)
            raise TopologyError(
                f"{source} line {last}: no row for {name}, cell {name}-{block.devices[0]} is"
                " missing; expected one row per column of the header (is the file truncated?)"
            )


def _model(text: str) -> str | None:
    """The one model that `nvidia-smi -L` lines name; None if none or several."""
    models = {match.group(2) for match in _MODEL.finditer(text)}
    return models.pop() if len(models) == 1 else None


def _nics(text: str, block: MatrixBlock, cells: Cells, source: str) -> tuple[Nic, ...]:
    names: dict[str, str] = {}
    legend = _NIC_LEGEND.search(text)
    if legend:
        names = dict(_NIC_NAME.findall(text[legend.end() :]))
    result = []
    for nic in block.devices:
        if _GPU.fullmatch(nic) or _NO_NIC.fullmatch(nic):
            continue
        if legend and nic not in names and re.fullmatch(r"NIC\d+", nic):
            line = text.count("\n", 0, legend.start()) + 1
            raise TopologyError(
                f"{source} line {line}: the NIC legend does not name {nic};"
                " expected every NIC column (is the file truncated?)"
            )
        kinds = tuple(cells.label(gpu, nic) for gpu in block.gpus)
        result.append(Nic(names.get(nic, nic), kinds, pci.normalise(nic)))
    return tuple(result)


def nvlink_domain(query: str) -> str:
    """Which NVLink domain the node is in, by its `nvidia-smi -q`: `ClusterUUID.CliqueId`.

    GPUs of nodes in one domain and one of its partitions (cliques) reach one another over NVLink,
    as in an NVL72. '' where the node's links end in it (an HGX has a cluster of zeros), where its
    GPUs are of several, or where the fabric manager has not registered one of them.
    """
    gpus: list[dict[str, str]] = []
    is_fabric = False
    for line in query.splitlines():
        if line.startswith("GPU "):
            gpus.append({})
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon:
            is_fabric = name == "Fabric"
        elif is_fabric and gpus:
            gpus[-1].setdefault(name, value)
    found = {_domain(one) for one in gpus}
    return found.pop() if len(found) == 1 else ""


def _domain(fabric: Mapping[str, str]) -> str:
    """The domain of one GPU, by the lines of its Fabric."""
    state, status = fabric.get("State"), fabric.get("Status")
    clique, cluster = fabric.get("CliqueId", ""), fabric.get("ClusterUUID", "").lower()
    is_one = _UUID.fullmatch(cluster) and clique.isascii() and clique.isdecimal()
    if (state, status) != ("Completed", "Success") or not is_one or not cluster.strip("0-"):
        return ""
    return f"{cluster}.{clique[:10]}"


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
