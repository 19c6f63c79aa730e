"""What differs between Slurm releases in the commands.

On 22.05 scontrol knows no --json, so sinfo and squeue are asked, and GRES are `gres:gpu:2`. From
23.11 on they are `gres/gpu:2`. On 26.05 only squeue tells that a job is exclusive.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_plugin.errors import SlurmError

#: The oldest release whose replies are recorded in the tests.
OLDEST = (22, 5)
_JSON_SCONTROL = (23, 2)
# Each refuses the other's: 23.02 writes `gres:gpu`, 23.11 `gres/gpu`.
_SLASH_GRES = (23, 11)
# Older ones (25.11 was tried) tell it in JSON, and their squeue exits 0 for a column it lacks.
_EXCLUSIVE_COLUMN = (26, 5)


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands one release answers in JSON."""

    nodes: tuple[str, ...]
    jobs: tuple[str, ...]
    #: Lacks the job's id; () where no command tells of one job.
    one_job: tuple[str, ...]
    #: What stands in `gres/gpu`.
    gres_separator: str
    #: squeue tells which jobs are exclusive; JSON does not.
    exclusive: bool


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
    separator = "/" if version >= _SLASH_GRES else ":"
    if version < _JSON_SCONTROL:
        return Commands(("sinfo", "--json"), ("squeue", "--json"), (), separator, exclusive=False)
    return Commands(
        ("scontrol", "show", "nodes", "--json"),
        ("scontrol", "-d", "show", "jobs", "--json"),
        ("scontrol", "-d", "--json", "show", "job"),
        separator,
        exclusive=version >= _EXCLUSIVE_COLUMN,
    )
