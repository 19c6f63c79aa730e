"""What a site's slurm.conf says of its nodes, its partitions and when Slurm looks at its queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from gres_topology import TopologyError, hostlist
from gres_topology.slurm_files import conf_lines
from simulation.core.jobs import SimJob
from simulation.errors import SimulationError

#: `UNLIMITED`, as Slurm plans with it: a year.
ENDLESS_S = 365 * 86_400.0
_PLAIN = "default"
#: How slurm.conf says that something is so.
_TRUE = ("YES", "UP", "TRUE", "1")


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
    #: In another one than UP Slurm starts no job.
    state: str = "UP"

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
    #: Words of SchedulerParameters that the simulator knows nothing of.
    passed_over: tuple[str, ...] = ()

    def partition_of(self, job: SimJob) -> SitePartition:
        """The job's partition, else the default one; SimulationError where there is none."""
        found = self.partitions.get(job.partition)
        if not job.partition:
            found = next((one for one in self.partitions.values() if one.is_default), None)
        if found is None:
            named = f"partition {job.partition!r}" if job.partition else "no partition"
            known = ", ".join(self.partitions)
            raise SimulationError(f"job {job.called}: {named}; slurm.conf has {known}")
        return found


#: Word of SchedulerParameters -> field, and the seconds (or pieces) that one of it is.
_PARAMETERS = {
    "batch_sched_delay": ("batch_sched_delay_s", 1.0), "bf_interval": ("bf_interval_s", 1.0),
    "sched_interval": ("sched_interval_s", 1.0), "bf_resolution": ("bf_resolution_s", 1.0),
    "sched_min_interval": ("sched_min_interval_s", 1e-6), "bf_window": ("bf_window_s", 60.0),
    "default_queue_depth": ("default_queue_depth", 1), "bf_max_job_test": ("bf_max_job_test", 1),
}  # fmt: skip


#: The second one is about batch jobs; a log tells of no job whether it was one, and most are.
_DEFER = ("defer", "defer_batch")


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise TopologyError(f"{path}: {error.strerror}") from None


def read(path: Path, text_of: Callable[[Path], str] = _text) -> SlurmSite:
    """The site of a slurm.conf and of what it includes; what is not modelled is passed over.

    As src/common/read_config.c and src/slurmctld/read_config.c of 24.11. `text_of` reads a file.
    SimulationError names the file and line that cannot be read.
    """
    said: dict[str, object] = {}
    #: What SchedulerParameters say: of several such lines the last one counts alone.
    parameters: dict[str, object] = {}
    lines: dict[str, list[_Line]] = {"nodename": [], "partitionname": [], "nodeset": []}
    #: What DEFAULT lines say of the nodes and partitions below them.
    usual: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    seen: dict[str, str] = {}
    try:
        for file, line in conf_lines.included(path, text_of, lambda: seen.get("clustername")):
            where = f"{file}, line {line.number}"
            try:
                pairs = conf_lines.pairs(line)
                kind = next((kind for kind in lines if kind in pairs), "")
                if kind in usual and pairs[kind].upper() == "DEFAULT":
                    usual[kind] |= pairs
                elif kind:
                    lines[kind].append(_Line(pairs[kind], pairs, dict(usual.get(kind, {})), where))
                else:
                    seen.update(pairs)
                    said |= _settings(pairs)
                    if "schedulerparameters" in pairs:
                        parameters = _parameters(pairs["schedulerparameters"])
            except ValueError as error:
                raise SimulationError(f"{where}: {error}") from None
    except TopologyError as error:
        raise SimulationError(str(error)) from None
    rooms, features = _nodes(lines["nodename"])
    if not _counts_memory(seen):
        rooms = {name: room._replace(memory_mb=math.inf) for name, room in rooms.items()}
    partitions = _partitions(lines["partitionname"], lines["nodeset"], features)
    scheduling = Scheduling(**said | parameters)  # type: ignore[arg-type]
    site = SlurmSite(scheduling, rooms, passed_over=_passed_over(seen))
    return replace(site, partitions=partitions) if partitions else site


def _passed_over(said: Mapping[str, str]) -> tuple[str, ...]:
    words = said.get("schedulerparameters", "").split(",")
    names = dict.fromkeys(word.partition("=")[0].strip() for word in words)
    return tuple(name for name in names if name and name not in {*_PARAMETERS, *_DEFER})


def _counts_memory(said: Mapping[str, str]) -> bool:
    """Whether jobs are given memory, so that a node can have too little left of it.

    By default so with select/cons_tres, which is the default itself (`_validate_and_set_defaults`
    in src/common/read_config.c of 24.11).
    """
    if "selecttypeparameters" in said:
        return "memory" in said["selecttypeparameters"].lower()
    return "cons_tres" in said.get("selecttype", "select/cons_tres")


class _Line(NamedTuple):
    """What a line says of nodes, a partition or a set of nodes, and what DEFAULT lines say."""

    name: str
    own: Mapping[str, str]
    usual: Mapping[str, str]
    where: str

    def first(self, *keys: str) -> str | None:
        """The first of these keys that the line itself has, else that DEFAULT lines have."""
        said = (pairs[key] for pairs in (self.own, self.usual) for key in keys if key in pairs)
        return next(said, None)

    def number(self, *keys: str) -> int | None:
        """The same as a number; None where it is not said. Raises ValueError for no number."""
        text = self.first(*keys)
        if text is None:
            return None
        if not text.isdecimal():
            raise ValueError(f"{keys[0]}={text!r}; expected a number")
        return int(text)


def _settings(pairs: Mapping[str, str]) -> dict[str, object]:
    """Fields of Scheduling that a line says something of, but by SchedulerParameters."""
    found: dict[str, object] = {}
    if "schedulertype" in pairs:
        found["backfill"] = pairs["schedulertype"] == "sched/backfill"
    if "overtimelimit" in pairs:
        over_s = seconds(pairs["overtimelimit"])
        found["over_time_limit_s"] = ENDLESS_S if over_s is None else over_s
    return found


def _nodes(lines: Iterable[_Line]) -> tuple[dict[str, NodeRoom], dict[str, list[str]]]:
    """Each node's CPUs and memory, and the nodes of each feature."""
    rooms: dict[str, NodeRoom] = {}
    features: dict[str, list[str]] = {}
    for line in lines:
        try:
            names = hostlist.expand(line.name)
            rooms |= dict.fromkeys(names, _room(line))
        except ValueError as error:
            raise SimulationError(f"{line.where}: {error}") from None
        for feature in filter(None, (line.first("feature", "features") or "").split(",")):
            features.setdefault(feature, []).extend(names)
    return rooms, features


def _room(line: _Line) -> NodeRoom:
    """CPUs as said where they are a node's sockets, cores or threads; else its threads."""
    # Procs= is an old word for CPUs=, and counts after those of DEFAULT lines.
    cpus = line.number("cpus")
    cpus = line.number("procs") if cpus is None else cpus
    boards, cores = line.number("boards") or 1, line.number("corespersocket") or 1
    each = cores * (line.number("threadspercore") or 1)
    on_board, sockets = line.number("socketsperboard"), line.number("sockets")
    if on_board is not None:
        sockets = boards * max(1, on_board)
    elif sockets is None:
        is_whole = cpus is not None and cpus >= each and cpus % each == 0
        sockets = cpus // each if cpus is not None and is_whole else boards
    sockets = max(1, sockets)
    if cpus is None or max(1, cpus) not in (sockets, sockets * cores, sockets * each):
        cpus = sockets * each
    memory = line.number("realmemory")
    return NodeRoom(max(1, cpus), 1 if memory is None else memory)


def _partitions(
    lines: Iterable[_Line], sets: Sequence[_Line], features: Mapping[str, Sequence[str]]
) -> dict[str, SitePartition]:
    """The partitions by name. Of several that are the default the last one is."""
    partitions: dict[str, SitePartition] = {}
    for line in lines:
        try:
            one = _partition(line, sets, features)
        except ValueError as error:
            raise SimulationError(f"{line.where}: {error}") from None
        if one.is_default:
            partitions = {
                name: replace(each, is_default=False) for name, each in partitions.items()
            }
        partitions[line.name] = one
    return partitions


def _partition(
    line: _Line, sets: Sequence[_Line], features: Mapping[str, Sequence[str]]
) -> SitePartition:
    default_s, most_s = _minutes_s(line.first("defaulttime")), _minutes_s(line.first("maxtime"))
    if default_s is not None and most_s is not None and default_s > most_s:
        default_s = None
    tiers = (line.number("priority"), line.number("prioritytier"))
    return SitePartition(
        _members(line.first("nodes") or "", sets, features),
        default_s,
        most_s,
        next((tier for tier in tiers if tier is not None), 1),
        (line.first("default") or "").upper() in _TRUE,
        (line.first("state") or "UP").upper(),
    )


def _members(
    text: str, sets: Iterable[_Line], features: Mapping[str, Sequence[str]]
) -> frozenset[str] | None:
    """The nodes of `Nodes=`, in which sets of nodes may be named; None for all nodes."""
    if text.upper() == "ALL":
        return None
    named = set(hostlist.expand(text)) if text else set()
    for one in sets:
        if one.name in named:
            named.discard(one.name)
            nodes = one.own.get("nodes", "")
            if nodes.upper() == "ALL":
                return None
            named.update(features.get(one.own.get("feature", ""), ()))
            named.update(hostlist.expand(nodes) if nodes else ())
    return frozenset(named)


def _minutes_s(text: str | None) -> float | None:
    """A time in seconds, of whole minutes, as partitions have it; None: without limit."""
    at_s = None if text is None else seconds(text)
    return None if at_s is None else 60.0 * math.ceil(at_s / 60)


def _parameters(text: str) -> dict[str, object]:
    """Fields of Scheduling that SchedulerParameters say something of."""
    found: dict[str, object] = {}
    for word in text.split(","):
        name, _, value = word.partition("=")
        if name in _DEFER:
            found["defer"] = True
        elif name in _PARAMETERS:
            field_name, unit = _PARAMETERS[name]
            if value == "-1" and name == "bf_interval":
                found["backfill"] = False
                continue
            if value == "-1" and name == "sched_interval":
                found["sched_interval_s"] = math.inf
                continue
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
