"""Reads Slurm's own words: `scontrol show job -d`, GRES with indices, host lists."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gres_topology import hostlist
from gres_topology.cpulist import parse_list
from slurm_plugin.slurm import gres_text

# Values of these may hold spaces and `=`; Slurm prints each on a line of its own.
_WHOLE_LINES = frozenset(
    {
        "Comment",
        "AdminComment",
        "Command",
        "WorkDir",
        "StdErr",
        "StdIn",
        "StdOut",
        "SubmitLine",
        "Extra",
    }
)


@dataclass(frozen=True)
class Job:
    """One record of `scontrol show job -d`; `gpus` and `cores` by node, empty unless running."""

    id: int
    state: str
    reason: str
    gpus: dict[str, tuple[int, ...]]
    fields: dict[str, str] = field(repr=False)
    #: Slurm's abstract CPUs, which are not Linux's numbers.
    cores: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes the job has or had, in Slurm's order."""
        return expand_hosts(self.fields.get("NodeList", ""))

    @property
    def admin_comment(self) -> str:
        """AdminComment; "" where it has none."""
        return self.fields.get("AdminComment", "")


def parse_indices(text: str) -> tuple[int, ...]:
    """`5,0-2` to (5, 0, 1, 2), in the order written; `N/A` and the empty string to ()."""
    parts = text.split(",") if text not in ("", "N/A") else []
    return tuple(index for part in parts for index in parse_list(part))


def expand_hosts(text: str) -> tuple[str, ...]:
    """`dgx[1-2],minsky1` to its names; `(null)` and the empty string to ()."""
    return () if text in ("", "(null)") else hostlist.expand(text)


def parse_jobs(text: str) -> list[Job]:
    """Every record in the output of `scontrol show job -d`."""
    return [_parse_job(record) for record in re.split(r"\n\s*\n", text) if "JobId=" in record]


def _parse_job(record: str) -> Job:
    fields: dict[str, str] = {}
    gpus: dict[str, tuple[int, ...]] = {}
    cores: dict[str, tuple[int, ...]] = {}
    for line in map(str.strip, record.splitlines()):
        key, _, value = line.partition("=")
        if key in _WHOLE_LINES:
            fields[key] = value
        elif key == "Nodes":
            nodes, _, rest = value.partition(" ")
            indices = gres_text.indices(rest.partition("GRES=")[2])
            cpus = parse_indices(rest.partition("CPU_IDs=")[2].partition(" ")[0])
            gpus.update({node: indices for node in expand_hosts(nodes) if indices})
            cores.update(dict.fromkeys(expand_hosts(nodes), cpus))
        else:
            pairs = (word.partition("=") for word in line.split() if "=" in word)
            fields.update((name, text) for name, _, text in pairs)
    return Job(
        int(fields["JobId"]), fields["JobState"], fields.get("Reason", ""), gpus, fields, cores
    )
