"""PCI addresses in one spelling: `0000:07:00.0`."""

from __future__ import annotations

import re

_ADDRESS = re.compile(
    r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE
)


def normalise(text: str) -> str | None:
    """`00000000:07:00.0`, `07:00.0`, `0000:C1:00.0` -> domain of four digits, lower case.

    None if the text is not a PCI address.
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups(default="0")
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def place(text: str) -> tuple[int, ...] | None:
    """An address as numbers, which sort as the bus does; None if the text is none."""
    address = normalise(text)
    return None if address is None else tuple(int(part, 16) for part in re.split("[:.]", address))
