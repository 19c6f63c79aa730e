"""Parts of a run: waits by job size, bandwidth by user, stranded GPUs and use over time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import NamedTuple

from gres_topology import NodeTopology
from policies.fragmentation import fragmentation_of
from simulation.core.link_quality import judge
from simulation.core.record import Record, SimulatedRun
from simulation.report.metrics import gpus_of, quantile, summary

#: Sizes of jobs that are told together: the most GPUs of each.
SIZES = (1, 2, 4, 8, 16, 32)
#: Moments at which a run is looked at for what is stranded.
MOMENTS = 1000
#: Nodes of at most so many GPUs have a best set to compare with.
_JUDGED = 16


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """A key by which h2 comes before h10."""
    return tuple((text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name))


def size_of(record: Record) -> str:
    """The words for the job's size: `1 GPU`, `3 to 4`, `more than 32`."""
    gpus = gpus_of(record)
    below = 0
    for most in SIZES:
        if gpus <= most:
            if most == below + 1:
                return f"{most} GPU" if most == 1 else f"{most} GPUs"
            return f"{below + 1} to {most}"
        below = most
    return f"more than {SIZES[-1]}"


class SizeWait(NamedTuple):
    """How long the jobs of one size waited."""

    jobs: int
    mean_s: float
    p95_s: float


def waits_by_size(run: SimulatedRun) -> dict[str, SizeWait]:
    """Words for a size -> its waits; small jobs first, sizes without jobs left out."""
    waits: dict[str, list[float]] = {}
    for record in sorted(run.records, key=gpus_of):
        waits.setdefault(size_of(record), []).append(record.waited_s)
    return {
        size: SizeWait(len(some), fmean(some), quantile(some, 0.95)) for size, some in waits.items()
    }


def effbw_of(record: Record, cluster: Mapping[str, NodeTopology]) -> float | None:
    """The job's effective bandwidth in GB/s, the mean of its nodes; None without a ring."""
    figures = [
        judge(cluster[name], gpus).effbw_gbps
        for name, gpus in record.placement.gpus.items()
        if len(gpus) > 1 and cluster[name].gpus <= _JUDGED
    ]
    return fmean(figures) if figures else None


def bandwidth_by_user(run: SimulatedRun, cluster: Mapping[str, NodeTopology]) -> dict[str, float]:
    """User -> mean effective bandwidth of their jobs, each as much as its GPU time in the log.

    Jobs without a ring and jobs without a user are left out.
    """
    sums: dict[str, list[float]] = {}
    for record in run.records:
        gbps = effbw_of(record, cluster) if record.job.user else None
        if gbps is not None:
            weight = gpus_of(record) * record.job.duration_s
            pair = sums.setdefault(record.job.user, [0.0, 0.0])
            pair[0] += weight * gbps
            pair[1] += weight
    return {user: total / weight for user, (total, weight) in sums.items() if weight > 0}


def mostly_over_s(runs: Sequence[SimulatedRun]) -> tuple[float, float]:
    """The first submit, and the moment by which 95 of 100 jobs of every run had ended.

    What comes later is a few long jobs on an empty cluster.
    """
    first = min((record.job.submit_s for run in runs for record in run.records), default=0.0)
    ends = [quantile([record.end_s for record in run.records], 0.95) for run in runs]
    return first, max([first, *ends])


@dataclass(frozen=True, slots=True)
class Moment:
    """GPUs of the whole cluster at one moment."""

    at_s: float
    free: int
    #: Free GPUs that no waiting job can use where they are (policies.fragmentation).
    stranded: int
    #: Fragmentation by the same page, from 0 to 1.
    fragmentation: float
    #: GPUs of the largest job that could start, as many on each of its nodes.
    largest: int


def moments(
    run: SimulatedRun, cluster: Mapping[str, NodeTopology], first_s: float, last_s: float
) -> list[Moment]:
    """What was free and stranded, at `MOMENTS` evenly spaced moments."""
    state = _State({name: topology.gpus for name, topology in cluster.items()})
    changes = sorted(_changes(run), key=lambda change: change[:2])
    step = (last_s - first_s) / MOMENTS
    moments, at = [], 0
    for number in range(MOMENTS):
        now = first_s + (number + 0.5) * step
        while at < len(changes) and changes[at][0] <= now:
            state.change(changes[at][2], changes[at][1])
            at += 1
        moments.append(state.at(now))
    return moments


def arriving_s(run: SimulatedRun) -> tuple[float, float] | None:
    """The first submit and the last; None where all jobs were submitted at once."""
    submits = [record.job.submit_s for record in run.records]
    return (min(submits), max(submits)) if submits and min(submits) < max(submits) else None


def room(run: SimulatedRun, cluster: Mapping[str, NodeTopology]) -> dict[str, float | None]:
    """Means over the time in which jobs arrive; None where all were submitted at once.

    `stranded_share` is of all GPUs, `largest_gpus` those of the largest job that could start.
    """
    arriving = arriving_s(run)
    if arriving is None:
        return {"stranded_share": None, "largest_gpus": None}
    seen = moments(run, cluster, *arriving)
    return {
        "stranded_share": fmean(moment.stranded for moment in seen) / run.gpus,
        "largest_gpus": fmean(moment.largest for moment in seen),
    }


def figures(run: SimulatedRun, cluster: Mapping[str, NodeTopology]) -> dict[str, float | None]:
    """All figures of a run's table: `summary` and `room`."""
    return summary(run, cluster) | room(run, cluster)


_END, _SUBMIT, _START = 0, 1, 2


def _changes(run: SimulatedRun) -> list[tuple[float, int, Record]]:
    return [
        change
        for record in run.records
        for change in (
            (record.job.submit_s, _SUBMIT, record),
            (record.start_s, _START, record),
            (record.end_s, _END, record),
        )
    ]


class _State:
    """What is free on each node, and what waits and runs, by GPUs per node."""

    def __init__(self, totals: Mapping[str, int]) -> None:
        self.totals = totals
        self.free = dict(totals)
        #: (GPUs of a node, free GPUs of it) -> nodes that are so.
        self.kinds = Counter((total, total) for total in totals.values())
        self.waiting: Counter[int] = Counter()
        self.running: Counter[int] = Counter()

    def change(self, record: Record, what: int) -> None:
        asked = min(record.job.gpus_per_node)
        if what == _SUBMIT:
            self.waiting[asked] += 1
            return
        sign = 1 if what == _START else -1
        self.waiting[asked] -= what == _START
        self.running[asked] += sign
        for name, gpus in record.placement.gpus.items():
            total, free = self.totals[name], self.free[name]
            self.kinds[total, free] -= 1
            self.free[name] = free - sign * len(gpus)
            self.kinds[total, self.free[name]] += 1

    def at(self, now_s: float) -> Moment:
        """Nodes of one size with as much free are alike, so each such kind is judged once."""
        free, stranded, unusable = 0, 0, 0.0
        nodes_with: Counter[int] = Counter()
        for (total, count), nodes in self.kinds.items():
            if not (count and nodes):
                continue
            one = fragmentation_of(
                {"": count}, self.waiting, self.running, partial(_fits, total, count)
            )
            free += count * nodes
            stranded += one.stranded * nodes
            unusable += one.unusable * nodes
            nodes_with.update(dict.fromkeys(range(1, count + 1), nodes))
        largest = max((size * nodes for size, nodes in nodes_with.items()), default=0)
        return Moment(now_s, free, stranded, unusable / free if free else 0.0, largest)


def _fits(total: int, free: int, asked: int, node: str) -> bool | None:
    """Could a job that asks for so many GPUs per node start there; None: never."""
    return None if asked > total else free >= asked


def in_use(
    run: SimulatedRun,
    nodes: Mapping[str, NodeTopology],
    first_s: float,
    last_s: float,
    parts: int,
) -> dict[str, list[float]]:
    """Node -> its share of GPU time in use, in each of `parts` equal parts of the time."""
    step = (last_s - first_s) / parts or 1.0
    busy = {name: [0.0] * parts for name in nodes}
    for record in run.records:
        for name, gpus in record.placement.gpus.items():
            if name in busy:
                _add(busy[name], len(gpus), record.start_s - first_s, record.end_s - first_s, step)
    return {
        name: [used / (step * nodes[name].gpus) for used in some] for name, some in busy.items()
    }


def _add(used: list[float], gpus: int, start_s: float, end_s: float, step: float) -> None:
    """Add a job's GPU time to the parts in which it ran."""
    for part in range(int(start_s // step), min(len(used), int(end_s // step) + 1)):
        inside = min(end_s, (part + 1) * step) - max(start_s, part * step)
        used[part] += gpus * max(0.0, inside)
