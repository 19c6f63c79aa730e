"""One door for every format: tells what a text is and hands it to its reader."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from gres_topology import catalog
from gres_topology.catalog import declared
from gres_topology.errors import TopologyError, did_you_mean
from gres_topology.readers import (
    hwloc_xml,
    nccl_xml,
    numactl,
    nvidia_smi,
    pasted,
    saved,
    xpu_smi,
)
from gres_topology.readers.amd import amd_smi, rocm_smi
from gres_topology.topology import NodeTopology

#: A report is some hundred kilobytes at most (hwloc on the largest nodes).
MAX_BYTES = 32 * 2**20

FORMATS = (
    "nvidia-smi topo -m, amd-smi topology --json, rocm-smi --showtopo, xpu-smi topology -m,"
    " NCCL or RCCL topology XML, hwloc XML (lstopo --of xml), numactl --hardware, a machine in"
    " YAML, or saved JSON"
)


#: In this order: the first whose mark is in the text reads it, `read(text, name=..., source=...)`.
_READERS: tuple[tuple[Callable[[str], bool], Callable[..., NodeTopology]], ...] = (
    (amd_smi.looks_like, amd_smi.read),
    (lambda text: saved.looks_like(text) and not rocm_smi.looks_like(text), saved.read),
    (lambda text: _is_xml(text) and bool(re.search(r"<topology\b", text)), hwloc_xml.read),
    (lambda text: _is_xml(text) and bool(re.search(r"<system\b", text)), nccl_xml.read),
    (rocm_smi.looks_like, rocm_smi.read),
    (xpu_smi.looks_like, xpu_smi.read),
    (nvidia_smi.looks_like, nvidia_smi.read),
    (numactl.looks_like, numactl.read),
    (lambda text: bool(re.search(r"^(gpus|like)\s*:", text, re.MULTILINE)), declared.read),
)


def read(
    path_or_text: str | Path, *, name: str | None = None, source: str | None = None
) -> NodeTopology:
    """A topology from a file, or from text (recognised by its line breaks).

    `name` is the file's stem and `source` its name unless given. Raises TopologyError, one
    line, if it cannot be read or is no topology.
    """
    if isinstance(path_or_text, str) and "\n" in path_or_text:
        text, known_as = path_or_text, "text"
    else:
        path = Path(path_or_text)
        text, known_as = _load(path), str(path)
    source = source or known_as
    name = name or Path(known_as).stem
    raw, text = text, pasted.clean(text)
    for is_format, reader in _READERS:
        if is_format(text):
            if reader is nvidia_smi.read:
                nvidia_smi.check_command(raw, source)
            return reader(text, name=name, source=source)
    if failed := pasted.failure(text):
        line, said = failed
        raise TopologyError(f"{source} line {line}: the tool failed: {said}")
    raise TopologyError(f"{source}: not a topology; expected the output of {FORMATS}")


def find(name_or_file: str) -> NodeTopology:
    """A machine of the catalog by name, else the topology in the file of that name."""
    if name_or_file in catalog.names():
        return catalog.load(name_or_file)
    if "/" not in name_or_file and "\n" not in name_or_file and not Path(name_or_file).exists():
        raise TopologyError(
            f"'{name_or_file}' is neither a file nor a machine of the catalog"
            f" ({', '.join(catalog.names())}){did_you_mean(name_or_file, catalog.names())}"
        )
    return read(Path(name_or_file))


def _is_xml(text: str) -> bool:
    """Whether the first thing in the text, comments apart, is an element."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return first.startswith("<")


def _load(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise TopologyError(f"{path}: larger than {MAX_BYTES >> 20} MiB; expected a report")
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, TopologyError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise TopologyError(f"{path}: {reason}; expected a readable topology file") from None
    if b"\x00" in data:
        raise TopologyError(f"{path}: binary data; expected the output of {FORMATS}")
    return data.decode("utf-8", errors="replace")
