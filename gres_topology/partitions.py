"""Partitions of AMD's MI300 and MI350: the modes of a GPU, and what amd-smi says of them.

A mode cuts a whole GPU into equal parts: DPX into two, TPX three, QPX four, CPX into one for each
of its compute dies (XCDs); SPX leaves it whole. NPS is into how many parts its memory is cut. As a
GRES type a mode is `cpx`, or `cpx_nps4` with its memory. Which go together: `is_valid_mode` in
amdgpu's aqua_vanjaram.c (Linux 6.12); how many XCDs: AMD SMI's guide, "GPU partitioning".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gres_topology.errors import TopologyError

#: XCDs -> mode -> parts of the GPU, and what its memory may be cut into.
_MODES: Mapping[int, Mapping[str, tuple[int, tuple[int, ...]]]] = {
    8: {"dpx": (2, (1, 2)), "qpx": (4, (1, 4)), "cpx": (8, (1, 2, 4, 8))},
    6: {"tpx": (3, (1, 3)), "cpx": (6, (1, 2, 3, 6))},
}
_XCDS = ((r"MI300A", 6), (r"MI3(?:00|25|50|55)X", 8))
_MODE = re.compile(r"(?<![a-z0-9])([dtqc]px)(?:_nps([1-8]))?\Z")
_EXPECTED = "expected the output of `amd-smi partition --current --json`, made by root"


def mode_of(gres_type: str) -> str:
    """The mode that a GRES type names: `mi300x_cpx` is `cpx`; '' for any other type."""
    match = _MODE.search(gres_type)
    return match.group(0) if match else ""


def problem(model: str | None, modes: Sequence[str]) -> str:
    """Why a GPU of this model cannot be in these parts (a mode for each); empty if it can."""
    first, *others = modes
    if any(other != first for other in others):
        return f"{', '.join(dict.fromkeys(modes))} at once; expected one mode for a GPU"
    match = _MODE.search(first)
    assert match is not None, f"{first!r} is no mode"
    mode, memory = match[1], int(match[2] or 1)
    xcds = next((count for name, count in _XCDS if re.search(name, model or "")), None)
    if model and xcds is None:
        return f"{first}: {model} cannot be partitioned; expected one of the MI300s or MI350s"
    known = [
        _MODES[count][mode] for count in _MODES if xcds in (None, count) and mode in _MODES[count]
    ]
    if not known:
        modes_known = ", ".join(_MODES[xcds or 8])
        return f"{first}: {model} has no such mode; expected {modes_known}"
    if not any(memory in memories for _, memories in known):
        return f"{first}: {mode} with memory in {memory} parts; expected {known[0][1]}"
    if len(modes) not in [parts for parts, _ in known]:
        counts = " or ".join(str(parts) for parts, _ in known)
        return f"{len(modes)} parts in {first}; expected all of its {counts}"
    return ""


def counts(model: str | None) -> frozenset[int]:
    """Into how many parts a GPU of this model may be cut; none where it cannot be."""
    xcds = next((count for name, count in _XCDS if re.search(name, model or "")), 0)
    return frozenset(parts for parts, _ in _MODES.get(xcds, {}).values())


def looks_like(text: str) -> bool:
    """Whether the text is what `words_of` reads."""
    return re.search(r'"current_partition"\s*:', text) is not None


def words_of(text: str) -> list[str]:
    """`slices` of gputopo.yaml (`0-5`, `6/cpx*8`) from `amd-smi partition --current --json`.

    amd-smi counts every partition as a GPU, and tells mode and memory with the first one of each.
    Raises TopologyError that names the line.
    """
    words: list[str] = []
    for gpu, (mode, parts) in enumerate(_gpus(_rows(text), text)):
        if mode == "spx":
            words.append(str(gpu))
        else:
            words.append(f"{gpu}/{mode}*{parts}")
    return words


def _rows(text: str) -> list[dict[str, Any]]:
    start = text.find("{")
    try:
        said, _ = json.JSONDecoder().raw_decode(text, max(start, 0))
        rows = said["current_partition"]
    except json.JSONDecodeError as error:
        raise TopologyError(f"line {error.lineno}: {error.msg}; {_EXPECTED}") from None
    except (KeyError, TypeError, RecursionError, ValueError):
        raise TopologyError(f"no list current_partition; {_EXPECTED}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows) or not rows:
        raise TopologyError(f"no GPUs in current_partition; {_EXPECTED}")
    return rows


def _gpus(rows: Sequence[Mapping[str, Any]], text: str) -> Iterator[tuple[str, int]]:
    """The mode of each GPU, and how many partitions amd-smi lists of it."""
    mode, parts = "", 0
    for row in rows:
        kind = str(row.get("accelerator_type")).strip("*").lower()
        opens = kind == "spx" or (kind != "n/a" and str(row.get("partition_id")) == "0")
        if opens and mode:
            yield mode, parts
        if opens:
            mode, parts = _named(kind, row, text), 0
        elif not mode or mode == "spx":
            raise _error(row, text, f"accelerator_type is {row.get('accelerator_type')!r}")
        parts += 1
    yield mode, parts


def _named(kind: str, row: Mapping[str, Any], text: str) -> str:
    """The mode with its memory where that is cut, too."""
    memory = str(row.get("memory")).lower()
    if kind == "spx":
        return kind
    name = kind if memory in ("nps1", "n/a") else f"{kind}_{memory}"
    if mode_of(name) != name:
        raise _error(row, text, f"{row.get('accelerator_type')!r} with {row.get('memory')!r}")
    return name


def _error(row: Mapping[str, Any], text: str, found: str) -> TopologyError:
    gpu = row.get("gpu_id")
    at = re.search(rf'"gpu_id"\s*:\s*"?{re.escape(str(gpu))}\b', text)
    line = text.count("\n", 0, at.start()) + 1 if at else 1
    return TopologyError(f"line {line}: gpu_id {gpu}: {found}; {_EXPECTED}")
