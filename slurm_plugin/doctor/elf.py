"""Reads `plugin_version` from a Slurm plugin, which Slurm loads only where it is its own version.

ELF-64 as in the System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct
from pathlib import Path

from gres_topology import plain_file

_SHT_DYNSYM = 11


def uint32_symbol(path: Path, name: str) -> int:
    """The value of an exported uint32 constant; ValueError where the file has no such one."""
    data = plain_file.read_bytes(path)
    if data[:5] != b"\x7fELF\x02":
        raise ValueError(f"{path}: not a 64-bit ELF file")
    order = "<" if data[5] == 1 else ">"
    try:
        return _find(data, order, name.encode())
    except (struct.error, IndexError) as error:
        raise ValueError(f"{path}: the ELF tables are damaged") from error
    except KeyError:
        raise ValueError(f"{path}: exports no {name}") from None


def _find(data: bytes, order: str, name: bytes) -> int:
    (offset,) = struct.unpack_from(order + "Q", data, 0x28)
    size, count = struct.unpack_from(order + "HH", data, 0x3A)
    # type, address, file offset, size, link, entry size of each section
    sections = [
        (
            struct.unpack_from(order + "I", data, offset + i * size + 4)[0],
            *struct.unpack_from(order + "QQQI", data, offset + i * size + 16),
        )
        for i in range(count)
    ]
    for kind, _, start, length, link in sections:
        if kind != _SHT_DYNSYM:
            continue
        strings = sections[link][2]
        for at in range(start, start + length, 24):
            text, _, _, section, value, _ = struct.unpack_from(order + "IBBHQQ", data, at)
            if section and data.startswith(name + b"\0", strings + text):
                _, address, file_offset, _, _ = sections[section]
                place = file_offset + value - address
                (number,) = struct.unpack_from(order + "I", data, place)
                return int(number)
    raise KeyError(name)
