"""The default Slurm client: the command-line tools, in JSON where the release has it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from gres_topology.slurm_files.network import Networks
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm import releases
from slurm_plugin.slurm.clients import rows, scontrol_tables, squeue_table, update_text
from slurm_plugin.slurm.clients.queue_reader import QueueReader
from slurm_plugin.slurm.interface import (
    JobUpdate,
    QueuedJob,
    Reservation,
    SlurmJob,
    SlurmNode,
    SlurmPartition,
)
from slurm_plugin.slurm.runner import Runner

_CONFIG_LINE = re.compile(r"\s*([A-Za-z][\w()\[\]/.\-]*)\s*=\s?(.*?)\s*\Z")
# A job of several partitions has a line for each.
_FACTOR_LINE = re.compile(r"\s*(\d{1,10})\s+(-?\d{1,10})\s*")

#: Jobs in one `scontrol update`: it takes about a millisecond for each, and has our time limit.
AT_ONCE = 500


class SlurmClient:
    """All we ask of Slurm, by its commands; each call raises SlurmError without an answer."""

    def __init__(self, run: Runner) -> None:
        self._run = run

    @cached_property
    def _commands(self) -> releases.Commands:
        return releases.commands(releases.parse_version(self._run(["scontrol", "--version"])))

    @cached_property
    def _reader(self) -> QueueReader | None:
        """None on 22.05, which cannot tell of one job in JSON."""
        one = self._commands.one_job
        return QueueReader(self._run, self._commands.jobs, one) if one else None

    def version(self) -> str:
        """The controller's release (not the client's: they may differ)."""
        text = self.config().get("SLURM_VERSION", "")
        releases.parse_version(text)
        return text

    def nodes(self) -> list[SlurmNode]:
        """Every node, by name."""
        argv = self._commands.nodes
        nodes = rows.nodes(self._run(list(argv)), " ".join(argv))
        return nodes if self._commands.one_job else scontrol_tables.with_cpus(self._run, nodes)

    def jobs(self) -> list[SlurmJob]:
        """Every job the controller holds, by id."""
        argv = self._commands.jobs
        return rows.jobs(self._run(list(argv)), " ".join(argv))

    def queue(self) -> list[QueuedJob]:
        """Every job that waits or holds resources, by id."""
        if self._reader is not None:
            jobs = self._reader.read()
            late = self._commands.exclusive
            return squeue_table.with_exclusive(self._run, jobs) if late else jobs
        argv = self._commands.jobs
        jobs = rows.queue(self._run(list(argv)), " ".join(argv))
        return squeue_table.with_cpus_per_task(self._run, jobs)

    def admin_comments(self) -> dict[int, str]:
        """The AdminComment of every job that waits or holds resources, by id: a quick reading."""
        rows_read = squeue_table.read(self._run, ("JobId", "admin_comment"))
        return {int(job): text for job, text in rows_read}

    def site_factors(self) -> dict[int, int]:
        """The site factors of the waiting jobs that have a priority now, by id.

        Slurm tells of none whose begin time is to come, or whose priority was set by hand.
        Raises SlurmError.
        """
        argv = ["sprio", "--noheader", "--format=%i %S"]
        factors = {}
        for line in self._run(argv).splitlines():
            if not (match := _FACTOR_LINE.fullmatch(line)):
                raise SlurmError(f"{' '.join(argv)}: said {line[:60]!r}; expected two numbers")
            factors[int(match[1])] = int(match[2])
        return factors

    def update(self, jobs: Sequence[str], change: JobUpdate) -> None:
        """Change the jobs, each called by its QueuedJob's `name`, or `4_1` for a task.

        Raises SlurmError with Slurm's words; the jobs that were not refused may have changed.
        """
        if change == JobUpdate():
            return
        refused = []
        fields = replace(change, is_released=None)
        for start in range(0, len(jobs), AT_ONCE):
            some = jobs[start : start + AT_ONCE]
            words = update_text.words(some, fields, self._commands.gres_separator)
            try:
                if fields != JobUpdate():
                    self._run(["scontrol", "update", *words])
                if change.is_released:
                    # No value of Priority= does it.
                    self._run(["scontrol", "release", ",".join(some)])
            except SlurmError as error:
                refused.append(str(error))
        if refused:
            raise SlurmError("; ".join(refused[:3]))

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

    def reservations(self) -> list[Reservation]:
        """Every reservation that this user may see; raises SlurmError."""
        return scontrol_tables.reservations(self._run)

    def partitions(self) -> list[SlurmPartition]:
        """`scontrol show partitions --oneliner`: text on every release."""
        return scontrol_tables.partitions(self._run)

    def networks(self) -> Networks:
        """What slurmctld has in force of its topologies."""
        return scontrol_tables.networks(self._run, self.partitions())
