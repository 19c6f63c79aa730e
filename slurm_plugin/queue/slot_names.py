"""Slot types: `v100.s3` is Slurm's GPU 3 of a node of V100s."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence

_SLOT = re.compile(r"(?:[A-Za-z_][\w.\-]*\.)?s(\d{1,3})\Z")


def index_of(gpu_type: str) -> int | None:
    """The GPU index a type names; None where it names a model or nothing."""
    match = _SLOT.match(gpu_type)
    return int(match[1]) if match else None


def slots_of(gpus: Mapping[str, int]) -> tuple[str, ...]:
    """A node's slot types in the order of their index; () where its GPUs are not slots."""
    found: dict[int, str] = {}
    for gpu_type, count in gpus.items():
        index = index_of(gpu_type)
        if index is None or count != 1 or index in found:
            return ()
        found[index] = gpu_type
    if set(found) != set(range(len(found))):
        return ()
    return tuple(found[i] for i in range(len(found)))


def mask_of(slots: Sequence[str], chosen: Container[str]) -> int:
    """The mask of those of a node's slots that are chosen."""
    return sum(1 << i for i, slot in enumerate(slots) if slot in chosen)


def request(slots: Sequence[str], mask: int, count: int = 1) -> str:
    """The GRES text that asks for the slots of `mask`, `count` of each."""
    chosen = [slot for i, slot in enumerate(slots) if mask >> i & 1]
    return ",".join(f"gpu:{slot}:{count}" for slot in chosen)


def lowest(mask: int, count: int) -> int:
    """The `count` lowest bits of `mask`; fewer where it has fewer."""
    taken = 0
    while mask and count:
        bit = mask & -mask
        taken, mask, count = taken | bit, mask ^ bit, count - 1
    return taken
