"""Slot types: where each GPU of a node has a GRES type of its own, `v100.s3` is GPU 3."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_SLOT = re.compile(r"(?:[A-Za-z_][\w.\-]*\.)?s(\d{1,3})\Z")


def index_of(gpu_type: str) -> int | None:
    """The GPU index that a type names; None where it names a model or nothing."""
    match = _SLOT.match(gpu_type)
    return int(match[1]) if match else None


def model_of(slot: str) -> str:
    """The GPU model in a slot type; '' where it names none."""
    return slot.rpartition(".")[0]


def slots_of(gpus: Mapping[str, int]) -> tuple[str, ...]:
    """A node's slot types in the order of their index; () where its GPUs are not slots."""
    by_index: dict[int, str] = {}
    for gpu_type, count in gpus.items():
        index = index_of(gpu_type)
        if index is None or count != 1 or index in by_index:
            return ()
        by_index[index] = gpu_type
    if set(by_index) != set(range(len(by_index))):
        return ()
    return tuple(by_index[i] for i in range(len(by_index)))


def request(slots: Sequence[str], mask: int, count: int = 1) -> str:
    """The GRES text that asks for the slots of `mask`, `count` of each."""
    chosen = [slot for i, slot in enumerate(slots) if mask >> i & 1]
    return ",".join(f"gpu:{slot}:{count}" for slot in chosen)
