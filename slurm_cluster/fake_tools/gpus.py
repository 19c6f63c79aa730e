"""What the fake tools of all vendors tell alike; what is not known is the same every time."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence

from gres_topology import NodeTopology

#: PCI domain and bus (0x0A01: domain 10, bus 1) of these machines' GPUs; elsewhere any will do.
_BUSES = {
    "a100-pcie-bridged": (0x01, 0x25, 0x41, 0x61, 0x81, 0xA1, 0xC1, 0xE1),
    "dgx1v": (0x06, 0x07, 0x0A, 0x0B, 0x85, 0x86, 0x89, 0x8A),
    "mi250x": (0xC1, 0xC6, 0xC9, 0xCE, 0xD1, 0xD6, 0xD9, 0xDE),
    "minsky": (0x0201, 0x0301, 0x0A01, 0x0B01),
}


def addresses(topology: NodeTopology) -> list[str]:
    """The GPUs' PCI addresses: those known, else the machine's usual ones, else made-up ones."""
    known = [address for address in topology.pci if address is not None]
    if len(known) == topology.gpus:
        return known
    buses: Sequence[int] = _BUSES.get(topology.name, ())
    if len(buses) != topology.gpus:
        buses = range(1, topology.gpus + 1)
    return [f"{bus >> 8:04x}:{bus & 0xFF:02x}:00.0" for bus in buses]


def uuid_of(*parts: object) -> uuid.UUID:
    """One that is made up of these, the same every time."""
    return uuid.UUID(bytes=hashlib.sha1("".join(map(str, parts)).encode()).digest()[:16])


def number_or(value: int | None, unknown: str) -> str:
    """A number as text."""
    return unknown if value is None else str(value)


def as_json(said: object) -> str:
    """As the tools lay it out."""
    return json.dumps(said, indent=4) + "\n"
