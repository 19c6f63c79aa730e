"""What differs between Slurm releases: which command prints JSON, and how values look.

22.05: scontrol knows no --json, so sinfo and squeue are asked; numbers are bare, a node's
state is one lower-case word with its flags apart. 23.02 and later: scontrol prints JSON;
numbers come as {"set": .., "number": ..} and states as lists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from slurm_plugin.errors import SlurmError

#: The oldest release whose replies are recorded in the tests.
OLDEST = (22, 5)
_JSON_SCONTROL = (23, 2)


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands one release answers in JSON."""

    nodes: tuple[str, ...]
    jobs: tuple[str, ...]


def parse_version(text: str) -> tuple[int, int]:
    """(major, minor) from `slurm-wlm 24.11.5` or `24.11.5`; raises SlurmError otherwise."""
    match = re.search(r"(\d{2})\.(\d{1,2})(?:\.\d+)?", text)
    if match is None:
        raise SlurmError(f"{text.strip()!r} names no Slurm release; expected one like 24.11.5")
    return int(match[1]), int(match[2])


def commands(version: tuple[int, int]) -> Commands:
    """How to ask this release; raises SlurmError for one older than 22.05."""
    if version < OLDEST:
        raise SlurmError(
            f"Slurm {version[0]}.{version[1]:02d} is older than 22.05, the oldest supported"
        )
    if version < _JSON_SCONTROL:
        return Commands(("sinfo", "--json"), ("squeue", "--json"))
    return Commands(
        ("scontrol", "show", "nodes", "--json"), ("scontrol", "-d", "show", "jobs", "--json")
    )


def number(value: Any) -> int:
    """A JSON number of any release; 0 when unset."""
    if isinstance(value, dict):
        value = value.get("number", 0) if value.get("set", True) else 0
    return int(value or 0)


def words(value: Any) -> tuple[str, ...]:
    """A state or list of any release as upper- or mixed-case words."""
    if isinstance(value, str):
        return tuple(word for word in re.split(r"[,+]", value) if word)
    return tuple(str(word) for word in value or ())


def states(row: dict[str, Any]) -> tuple[str, ...]:
    """A node's base state and flags in capitals, wherever the release puts them."""
    found = (*words(row.get("state")), *words(row.get("state_flags")))
    return tuple(word.upper() for word in found)
