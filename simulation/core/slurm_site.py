"""What a site's slurm.conf says of its nodes, its partitions and when Slurm looks at its queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gres_topology import hostlist
from gres_topology.slurm_files import conf_lines
from simulation.core.jobs import SimJob
from simulation.errors import SimulationError

#: `UNLIMITED`, as Slurm plans with it: a year.
ENDLESS_S = 365 * 86_400.0
_PLAIN = "default"


class NodeRoom(NamedTuple):
    """CPUs and memory of a node, or what is left of them."""

    cpus: float = float("inf")
    memory_mb: float = float("inf")

    def less(self, job: SimJob, sign: int = 1) -> NodeRoom:
        """What is left beside the job; with sign -1 what there is once it has gone."""
        return NodeRoom(self.cpus - sign * job.cpus, self.memory_mb - sign * job.memory_mb)

    def holds(self, job: SimJob) -> bool:
        """Whether the job's part on one node fits."""
        return self.cpus >= job.cpus and self.memory_mb >= job.memory_mb


@dataclass(frozen=True, slots=True)
class SitePartition:
    """One partition. `nodes` None: all of them. Times in seconds, None: no limit."""

    nodes: frozenset[str] | None = None
    default_s: float | None = None
    most_s: float | None = None
    tier: int = 1
    is_default: bool = False

    @property
    def planned_s(self) -> float:
        """The limit of a job that asks for none: DefaultTime, else MaxTime."""
        return next((at for at in (self.default_s, self.most_s) if at is not None), ENDLESS_S)


@dataclass(frozen=True, slots=True)
class Scheduling:
    """When Slurm looks at its queue, with the defaults of 24.11; seconds.

    `launch_s` and `complete_s` are no words of slurm.conf but measured: from the start of a job to
    that of its script, and from the script's end until its GPUs are free again.
    """

    backfill: bool = True
    defer: bool = False
    batch_sched_delay_s: float = 3.0
    sched_min_interval_s: float = 2e-6
    sched_interval_s: float = 60.0
    default_queue_depth: int = 100
    bf_interval_s: float = 30.0
    bf_resolution_s: float = 60.0
    bf_window_s: float = 86_400.0
    bf_max_job_test: int = 500
    over_time_limit_s: float = 0.0
    launch_s: float = 0.0
    complete_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SlurmSite:
    """A site; a node that `rooms` does not name has CPUs and memory for every job."""

    scheduling: Scheduling = field(default_factory=Scheduling)
    rooms: Mapping[str, NodeRoom] = field(default_factory=dict)
    partitions: Mapping[str, SitePartition] = field(
        default_factory=lambda: {_PLAIN: SitePartition(is_default=True)}
    )

    def partition_of(self, job: SimJob) -> SitePartition:
        """The job's partition, else the default one; SimulationError where there is none."""
        found = self.partitions.get(job.partition)
        if not job.partition:
            found = next((one for one in self.partitions.values() if one.is_default), None)
        if found is None:
            named = f"partition {job.partition!r}" if job.partition else "no partition"
            known = ", ".join(self.partitions)
            raise SimulationError(f"job {job.job_id}: {named}; slurm.conf has {known}")
        return found


#: Word of SchedulerParameters -> field, and the seconds (or pieces) that one of it is.
_PARAMETERS = {
    "batch_sched_delay": ("batch_sched_delay_s", 1.0), "bf_interval": ("bf_interval_s", 1.0),
    "sched_interval": ("sched_interval_s", 1.0), "bf_resolution": ("bf_resolution_s", 1.0),
    "sched_min_interval": ("sched_min_interval_s", 1e-6), "bf_window": ("bf_window_s", 60.0),
    "default_queue_depth": ("default_queue_depth", 1), "bf_max_job_test": ("bf_max_job_test", 1),
}  # fmt: skip


def read(text: str, source: str) -> SlurmSite:
    """The site of a slurm.conf; what is not modelled is passed over.

    SimulationError names the line that cannot be read.
    """
    said: dict[str, object] = {}
    rooms: dict[str, NodeRoom] = {}
    partitions: dict[str, SitePartition] = {}
    #: What DEFAULT lines say of the nodes and partitions below them.
    usual: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    for line in conf_lines.lines(text):
        try:
            pairs = conf_lines.pairs(line)
            kind = next((kind for kind in usual if kind in pairs), "")
            if kind and pairs[kind].upper() == "DEFAULT":
                usual[kind] |= pairs
            elif kind == "nodename":
                named = usual[kind] | pairs
                rooms |= dict.fromkeys(hostlist.expand(named[kind]), _room(named))
            elif kind:
                named = usual[kind] | pairs
                partitions |= dict.fromkeys(named[kind].split(","), _partition(named))
            elif "schedulertype" in pairs:
                said["backfill"] = pairs["schedulertype"] == "sched/backfill"
            elif "overtimelimit" in pairs:
                over_s = seconds(pairs["overtimelimit"])
                said["over_time_limit_s"] = ENDLESS_S if over_s is None else over_s
            elif "schedulerparameters" in pairs:
                said |= _parameters(pairs["schedulerparameters"])
        except ValueError as error:
            raise SimulationError(f"{source}, line {line.number}: {error}") from None
    scheduling = Scheduling(**said)  # type: ignore[arg-type]
    return SlurmSite(scheduling, rooms, partitions) if partitions else SlurmSite(scheduling, rooms)


def _room(pairs: Mapping[str, str]) -> NodeRoom:
    """CPUs as said, or by sockets, cores and threads; Slurm's own default of both is 1."""
    cpus = int(pairs.get("cpus", 0))
    if not cpus:
        words = ("sockets", "corespersocket", "threadspercore")
        cpus = 1
        for word in words:
            cpus *= int(pairs.get(word, 1))
    return NodeRoom(cpus, float(pairs.get("realmemory", 1)))


def _partition(pairs: Mapping[str, str]) -> SitePartition:
    nodes = pairs.get("nodes", "ALL")
    return SitePartition(
        None if nodes.upper() == "ALL" else frozenset(hostlist.expand(nodes)),
        seconds(pairs["defaulttime"]) if "defaulttime" in pairs else None,
        seconds(pairs.get("maxtime", "UNLIMITED")),
        int(pairs.get("prioritytier", 1)),
        pairs.get("default", "").upper() == "YES",
    )


def _parameters(text: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for word in text.split(","):
        name, _, value = word.partition("=")
        if name == "defer":
            found["defer"] = True
        elif name in _PARAMETERS:
            field_name, unit = _PARAMETERS[name]
            if not value.isdecimal():
                raise ValueError(f"{word!r} in SchedulerParameters; expected {name}=NUMBER")
            found[field_name] = int(value) * unit
    return found


def seconds(text: str) -> float | None:
    """Slurm's times: MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS; None: without limit."""
    if text.upper() in ("INFINITE", "UNLIMITED", "-1"):
        return None
    days, has_days, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in (*parts, days or "0")) or len(parts) > 3:
        raise ValueError(f"{text!r} is no time; expected minutes, HH:MM:SS or D-HH:MM:SS")
    units = (3600, 60, 1) if has_days or len(parts) == 3 else (60, 1)
    return 86_400.0 * int(days or 0) + sum(
        unit * int(part) for unit, part in zip(units, parts, strict=False)
    )


def in_order(jobs: Iterable[SimJob], site: SlurmSite) -> list[SimJob]:
    """The queue as Slurm goes through it: by the partition's tier, priority, then age."""
    return sorted(jobs, key=lambda job: (-site.partition_of(job).tier, -job.priority))
