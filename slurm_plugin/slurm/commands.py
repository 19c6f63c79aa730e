"""The default Slurm client: the command-line tools, in JSON where the release has it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

from slurm_plugin import hostlist
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm import gres_text, releases
from slurm_plugin.slurm.interface import SlurmJob, SlurmNode, SlurmPartition
from slurm_plugin.slurm.runner import Runner

_CONFIG_LINE = re.compile(r"\s*([A-Za-z][\w()/.\-]*)\s*=\s?(.*?)\s*\Z")


_Noun = TypeVar("_Noun")


class CommandLine:
    """A SlurmClient over scontrol, squeue and sinfo."""

    def __init__(self, run: Runner) -> None:
        self._run = run

    @cached_property
    def _commands(self) -> releases.Commands:
        return releases.commands(releases.parse_version(self._run(["scontrol", "--version"])))

    def version(self) -> str:
        """The controller's release (not the client's: they may differ)."""
        text = self.config().get("SLURM_VERSION", "")
        releases.parse_version(text)
        return text

    def nodes(self) -> list[SlurmNode]:
        """Every node, by name."""
        return sorted(self._read(self._commands.nodes, "nodes", _node), key=lambda node: node.name)

    def jobs(self) -> list[SlurmJob]:
        """Every job the controller holds, by id."""
        return sorted(self._read(self._commands.jobs, "jobs", _job), key=lambda job: job.job_id)

    def job(self, job_id: int) -> SlurmJob | None:
        """One job by its id (of an array: the first task listed), None if unknown."""
        jobs = self.jobs()
        exact = [job for job in jobs if job.job_id == job_id]
        found = exact or [job for job in jobs if job.array_id == job_id]
        return found[0] if found else None

    def config(self) -> Mapping[str, str]:
        """`scontrol show config`: text on every release."""
        values = {}
        for line in self._run(["scontrol", "show", "config"]).splitlines():
            match = _CONFIG_LINE.match(line)
            if match:
                values[match[1]] = "" if match[2] == "(null)" else match[2]
        if "SLURM_VERSION" not in values:
            raise SlurmError("scontrol show config: no SLURM_VERSION in the reply")
        return values

    def partitions(self) -> list[SlurmPartition]:
        """`scontrol show partitions --oneliner`: text on every release."""
        found = []
        text = self._run(["scontrol", "--oneliner", "show", "partitions"])
        for line in text.splitlines():
            pairs = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
            if "PartitionName" in pairs:
                nodes = pairs.get("Nodes", "")
                names = () if nodes in ("", "(null)") else hostlist.expand(nodes)
                default = pairs.get("Default") == "YES"
                found.append(SlurmPartition(pairs["PartitionName"], names, default))
        return sorted(found, key=lambda partition: partition.name)

    def _read(
        self, argv: tuple[str, ...], key: str, read: Callable[[dict[str, Any]], _Noun]
    ) -> list[_Noun]:
        shown = " ".join(argv)
        try:
            reply = json.loads(self._run(list(argv)))
        except ValueError as error:
            raise SlurmError(f"{shown}: the reply is not JSON: {error}") from error
        rows = reply.get(key) if isinstance(reply, dict) else None
        if not isinstance(rows, list):
            raise SlurmError(f"{shown}: no list {key!r} in the reply")
        try:
            return [read(row) for row in rows]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise SlurmError(f"{shown}: an entry of {key!r} cannot be read: {error!r}") from error


def _node(row: dict[str, Any]) -> SlurmNode:
    return SlurmNode(
        name=row["name"],
        state=releases.states(row),
        partitions=releases.words(row.get("partitions")),
        weight=releases.number(row.get("weight")),
        cpus=releases.number(row.get("cpus")),
        memory_mb=releases.number(row.get("real_memory")),
        gpus=gres_text.counts(row.get("gres") or ""),
        used=gres_text.indices(row.get("gres_used") or ""),
    )


def _job(row: dict[str, Any]) -> SlurmJob:
    nodes = row.get("nodes") or ""
    names = hostlist.expand(nodes) if nodes else ()
    details = row.get("gres_detail") or []
    gpus = {}
    # One gres_detail entry per allocated node, in the order of `nodes`.
    for name, text in zip(names, details, strict=False):
        indices = gres_text.indices(text)
        if indices:
            gpus[name] = indices
    state = releases.words(row.get("job_state"))
    return SlurmJob(
        job_id=releases.number(row["job_id"]),
        array_id=releases.number(row.get("array_job_id")),
        name=row.get("name") or "",
        user=row.get("user_name") or "",
        partition=row.get("partition") or "",
        state=state[0] if state else "",
        nodes=names,
        gpus=gpus,
        comment=row.get("comment") or "",
        admin_comment=row.get("admin_comment") or "",
    )
