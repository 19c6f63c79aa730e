"""A log as it was read: its jobs, what was rejected and why, what was left out by rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gres_topology import NodeTopology
from simulation.core.jobs import SimJob
from simulation.core.occupancy import FreeCounts
from simulation.core.requests import wrong_hint

#: More GPUs, nodes or GB in one job than any machine has; a typing error, not a job.
MOST = 1_000_000
#: Seconds; beyond this (some 300 years) a time is an error.
LONGEST_S = 1e10


class Rejected(NamedTuple):
    """One row that could not be used: `where` it stands and what was wrong with it."""

    where: str
    reason: str


@dataclass(slots=True)
class Trace:
    """A log. `left_out` counts what is no broken row: job steps, jobs without GPUs."""

    source: str
    format: str
    jobs: list[SimJob] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)

    def leave_out(self, kind: str) -> None:
        """Count one row that is left out by rule."""
        self.left_out[kind] = self.left_out.get(kind, 0) + 1

    def reject(self, where: str, reason: str) -> None:
        """Name one row that cannot be used, and what is wrong with it."""
        self.rejected.append(Rejected(where, reason))

    def add(self, where: str, job_id: object, /, **said: object) -> None:
        """One job, or a rejection that says what was read and what was expected.

        `said`: gpus and nodes in all, submit_s, duration_s, and walltime_s, hint, user, cpus and
        mem_gb in all, partition, priority, start_s where known; numbers may be text.
        """
        try:
            self.jobs.append(_job(len(self.jobs) + 1, job_id, said))
        except ValueError as error:
            self.reject(where, str(error))


def _job(number: int, job_id: object, said: dict[str, object]) -> SimJob:
    gpus = _whole("gpus", said["gpus"], 1)
    nodes = _whole("nodes", said.get("nodes") or 1, 1)
    if nodes > gpus:
        raise ValueError(f"{nodes} nodes for {gpus} GPUs; expected a GPU on every node")
    walltime, start = said.get("walltime_s"), said.get("start_s")
    submit_s = _seconds("submit_s", said["submit_s"])
    name = str(job_id)
    # Ids that are no numbers (17_3 of an array) get the row's number instead.
    identity = int(name) if name.isascii() and name.isdecimal() else -number
    each, more = divmod(gpus, nodes)
    return SimJob(
        identity,
        (each + 1,) * more + (each,) * (nodes - more),
        _seconds("duration_s", said["duration_s"]),
        submit_s,
        str(said.get("hint") or ""),
        None if walltime in (None, "") else _seconds("walltime_s", walltime),
        str(said.get("user") or ""),
        "" if identity >= 0 else name,
        cpus=_each("cpus", said, nodes),
        memory_mb=_each("mem_gb", said, nodes, 1024),
        partition=str(said.get("partition") or ""),
        priority=_whole("priority", said.get("priority") or 0, 0),
        waited_s=_waited_s(start, submit_s),
    )


def _waited_s(start: object, submit_s: float) -> float | None:
    """How long it waited; None where the log does not say when it started, or nothing sensible."""
    if start in (None, ""):
        return None
    waited_s = _seconds("start_s", start) - submit_s
    return waited_s if waited_s >= 0 else None


def _each(name: str, said: dict[str, object], nodes: int, unit: int = 1) -> int:
    """What each node has of it, rounded up; 0 where the log does not say."""
    try:
        number = float(str(said.get(name) or 0))
    except ValueError:
        number = math.nan
    if not 0 <= number <= MOST:
        raise ValueError(f"{name} is {said[name]!r}; expected a number, 0 or more")
    return math.ceil(number * unit / nodes)


def _whole(name: str, value: object, least: int) -> int:
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if 0 < number < MOST and number != int(number):
        raise ValueError(f"{name} is {value!r}; parts of a GPU are not simulated")
    if not least <= number <= (MOST if least else LONGEST_S):
        raise ValueError(f"{name} is {value!r}; expected a whole number from {least} on")
    return int(number)


def _seconds(name: str, value: object) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not 0 <= number <= LONGEST_S:
        raise ValueError(f"{name} is {value!r}; expected seconds, 0 or more")
    return number


def prepare(
    trace: Trace, cluster: Mapping[str, NodeTopology], skip_days: float = 0, most: int | None = None
) -> Trace:
    """The trace as this cluster can run it: ids unique, first submit at 0, jobs that fit.

    Jobs submitted in the first `skip_days` days and those after the first `most` are left
    out; a job that fits no empty cluster is rejected by name.
    """
    ready = Trace(trace.source, trace.format, [], list(trace.rejected), dict(trace.left_out))
    counts = FreeCounts(topology.gpus for topology in cluster.values())
    jobs = sorted(trace.jobs, key=lambda job: job.submit_s)
    first = (jobs[0].submit_s if jobs else 0) + skip_days * 86_400
    seen: set[int] = set()
    start: float | None = None
    for number, job in enumerate(jobs, 1):
        if job.submit_s < first:
            ready.leave_out(f"submitted in the first {skip_days:g} days")
            continue
        if most is not None and len(ready.jobs) >= most:
            ready.leave_out(f"after the first {most} jobs")
            continue
        if not counts.fits(job.gpus_per_node):
            shape = f"{sum(job.gpus_per_node)} GPUs on {len(job.gpus_per_node)} nodes"
            where = f"job {job.called}"
            ready.reject(where, f"{shape}: not on this cluster")
            continue
        if wrong := wrong_hint(job.hint):
            ready.reject(f"job {job.called}", wrong)
            continue
        start = job.submit_s if start is None else start
        identity = job.job_id if job.job_id >= 0 and job.job_id not in seen else -number
        seen.add(identity)
        name = job.name or ("" if identity == job.job_id else str(job.job_id))
        ready.jobs.append(replace(job, job_id=identity, name=name, submit_s=job.submit_s - start))
    return ready
