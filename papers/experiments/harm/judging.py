"""One run in numbers, and two policies' runs of the same jobs beside each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gres_topology import NodeTopology
from papers.experiments.harm.intervals import (
    chance_below,
    half_width,
    holm,
    needed_to_see,
    power,
    ratio,
    seen,
)
from papers.experiments.harm.traces import WORKLOADS
from papers.experiments.harm.workloads import WIDE, Drawn
from simulation.core.link_quality import share_of
from simulation.core.record import Record, SimulatedRun
from simulation.core.slurm_site import ENDLESS_S, Scheduling, SlurmSite
from simulation.models.placing import Simulator
from simulation.models.slurm import SlurmSimulator
from simulation.report.metrics import gpus_of, quantile

OURS = "horizon"
#: The first part of the jobs, from which run times are learned on a cluster that fills.
LEARNING = 0.1
#: What is in a row for the share of the ideal bandwidth on nodes of one machine.
ON = "share on "

#: {figure: value}: times in seconds, shares from 0 to 1.
Row = Mapping[str, float]


def run_one(workload: str, policy: str, seed: int, jobs: int) -> dict[str, float]:
    """The row of one policy on the jobs of one seed, with EASY backfill.

    Where a log has CPUs and memory with Slurm's own, whose defaults they need.
    """
    drawn = WORKLOADS[workload].drawn(seed, jobs)
    chosen = drawn.policy(policy)
    if drawn.rooms:
        # OverTimeLimit lets every job come to its end.
        site = SlurmSite(Scheduling(over_time_limit_s=ENDLESS_S), drawn.rooms)
        run = SlurmSimulator(drawn.nodes, chosen, site, drawn.speed).run(drawn.jobs)
    else:
        run = Simulator(drawn.nodes, chosen, drawn.speed, easy=True).run(drawn.jobs)
    return row_of(run, drawn)


def row_of(run: SimulatedRun, drawn: Drawn) -> dict[str, float]:
    """All jobs but the first ones; `cold_wait_s` has those, too.

    `in_vain`: jobs of which a wait for better GPUs ran its course. `unfair`: the mean wait of the
    user who waits longest over that of all. Figures of jobs that there are none of are left out.
    """
    first = {job.job_id for job in drawn.jobs[: round(LEARNING * len(drawn.jobs))]}
    counted = [record for record in run.records if record.job.job_id not in first]
    waits = [record.waited_s for record in counted]
    row = {
        "wait_s": fmean(waits),
        "wait_p95_s": quantile(waits, 0.95),
        "cold_wait_s": fmean(record.waited_s for record in run.records),
        "turnaround_s": fmean(record.end_s - record.job.submit_s for record in counted),
        "in_vain": fmean(record.postponed > 0 for record in counted),
    }
    wide = [record.waited_s for record in counted if gpus_of(record) >= WIDE]
    if wide:
        row["wide_wait_s"] = fmean(wide)
    by_user = _grouped(counted, lambda record: record.job.user)
    if row["wait_s"]:
        longest_s = max(fmean(one.waited_s for one in some) for some in by_user.values())
        row["unfair"] = longest_s / row["wait_s"]
    return row | _shares(counted, drawn.nodes)


def _shares(records: Sequence[Record], nodes: Mapping[str, NodeTopology]) -> dict[str, float]:
    """Of the ideal bandwidth, of jobs of several GPUs: on all nodes, and by machine."""
    shares: dict[str, list[float]] = {}
    for record in records:
        for name, gpus in record.placement.gpus.items():
            if len(gpus) > 1:
                share = share_of(nodes[name], sum(1 << gpu for gpu in gpus))
                shares.setdefault("share", []).append(share)
                shares.setdefault(ON + nodes[name].name, []).append(share)
    return {key: fmean(some) for key, some in shares.items()}


def _grouped(records: Sequence[Record], key: Callable[[Record], str]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


@dataclass(frozen=True, slots=True)
class Beside:
    """A figure of ours over another policy's, on the same jobs seed by seed."""

    ours: float
    theirs: float
    #: Below 1: ours has less of it; and half its interval.
    ratio: float
    half: float


def beside(ours: Sequence[Row], theirs: Sequence[Row], figure: str, error: float) -> Beside:
    """Both sides have a row for each seed, in the same order."""
    mine, its = [row[figure] for row in ours], [row[figure] for row in theirs]
    return Beside(fmean(mine), fmean(its), *ratio(mine, its, error))


#: Figure -> by what part more of it ours may have and still count as not worse.
MARGINS = {"wait_s": 0.05, "wait_p95_s": 0.10}
#: All claims together are wrong with this probability at most; each sees its margin with this one.
ERROR, SURE = 0.05, 0.8

#: What a site has, or would write, without us: of these a harm must not be missed.
WITHOUT_US = ("stock", "best-fit")

#: {policy: a row per seed} of a workload.
Cell = Mapping[str, Sequence[Row]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One figure of ours beside one other policy's, on one workload.

    The claim is that ours is not worse by more than the margin. `half` of `beside` is that of
    intervals that all hold together.
    """

    workload: str
    other: str
    figure: str
    beside: Beside
    seeds: int
    is_claimed: bool
    #: How likely the claim was, had both been alike; and how much more is told from the margin
    #: with 80 %, as a part of the other's figure.
    power: float
    sees: float

    @property
    def word(self) -> str:
        """`better` and `worse`: the whole interval lies there; else `not worse`, or `open`."""
        if self.beside.ratio + self.beside.half < 1:
            return "better"
        if self.beside.ratio - self.beside.half > 1:
            return "worse"
        return "not worse" if self.is_claimed else "open"


def _over_margin(cell: Cell, other: str, figure: str) -> list[float]:
    """Seed by seed, by how much ours is over what counts as not worse."""
    most = 1 + MARGINS[figure]
    pairs = zip(cell[OURS], cell[other], strict=True)
    return [ours[figure] - most * theirs[figure] for ours, theirs in pairs]


def verdicts(cells: Mapping[str, Cell]) -> list[Verdict]:
    """Of all comparisons there are, each cell's policies against ours."""
    every = [
        (name, other, figure)
        for name, cell in cells.items()
        if OURS in cell
        for other in cell
        if other != OURS
        for figure in MARGINS
    ]
    over = [_over_margin(cells[name], other, figure) for name, other, figure in every]
    claimed = holm([chance_below(values) for values in over], ERROR)
    each = ERROR / max(1, len(every))
    found = []
    for (name, other, figure), values, is_claimed in zip(every, over, claimed, strict=True):
        cell = cells[name]
        told = beside(cell[OURS], cell[other], figure, each)
        margin = MARGINS[figure] * told.theirs
        # Where nobody waits, nobody waits longer.
        is_claimed = is_claimed or told.ours <= told.theirs == 0
        found.append(
            Verdict(
                name,
                other,
                figure,
                told,
                len(values),
                is_claimed,
                power(values, each, margin),
                seen(values, each, SURE) / told.theirs if told.theirs else 0.0,
            )
        )
    return found


def seeds_needed(cell: Cell, comparisons: int) -> int:
    """How many seeds it takes until no worse a mean wait is claimed against each of `WITHOUT_US`.

    With `SURE`, if differences scatter as in this cell, and ours waits as long as the other's, or
    as much less as this cell shows without doubt; no fewer than it has.
    """
    needed = len(cell[OURS])
    for other in WITHOUT_US:
        margin = MARGINS["wait_s"] * fmean(row["wait_s"] for row in cell[other])
        if margin:
            values = _over_margin(cell, other, "wait_s")
            below = -fmean(values) - half_width(values, ERROR)
            distance = max(margin, below)
            needed = max(needed, needed_to_see(values, ERROR / comparisons, SURE, distance))
    return needed
