"""One key of gputopo.yaml, declared as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """One key: its type, default (None = must be given or unset), limits and meaning."""

    key: str
    type: str
    default: str | int | float | None
    doc: str
    choices: tuple[str, ...] = ()
    low: float = 0
    high: float = 2**31
    required: bool = False
