"""Pictures of simulated runs: what an administrator decides by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from gres_topology import NodeTopology
from gres_topology.pictures import Picture, charts, rows
from simulation.core.record import SimulatedRun
from simulation.report.breakdown import (
    Moment,
    arriving_s,
    bandwidth_by_user,
    in_use,
    moments,
    mostly_over_s,
    natural,
    waits_by_size,
)
from simulation.report.words import unit

#: More GPUs or jobs than this cannot be told apart in a timeline: use per node is drawn instead.
TIMELINE_GPUS, TIMELINE_JOBS = 64, 300
#: Rows of a picture of nodes; more nodes share a row with their neighbours.
NODE_ROWS = 40
#: Points of a curve, and parts of the time in a strip; more cannot be seen.
POINTS, STRIP_PARTS = 300, 140
#: Slowdowns and waits are drawn to this many digits: what differs less is the computer's rounding.
_DIGITS = 6
#: Users drawn who won most, and as many who lost most; smaller changes than this part are none.
USERS, SMALLEST = 8, 0.005


def waits(runs: Sequence[SimulatedRun]) -> Picture:
    """Mean wait by job size."""
    by_policy = {run.policy: waits_by_size(run) for run in runs}
    # Small jobs first, as the first run has them; every run has the same jobs.
    sizes = list(by_policy[runs[0].policy])
    name, length = unit(max(one.mean_s for some in by_policy.values() for one in some.values()))
    means = {
        policy: [round(some[size].mean_s, _DIGITS) / length for size in sizes]
        for policy, some in by_policy.items()
    }
    return charts.bars("Mean wait by job size", sizes, means, y=name)


def _ranked(values: Sequence[float]) -> list[tuple[float, float]]:
    """Worst first, thinned to what can be seen; the last one is always there."""
    ranked = sorted((round(value, _DIGITS) for value in values), reverse=True)
    step = max(1, len(ranked) // POINTS)
    places = [*range(0, len(ranked) - 1, step), len(ranked) - 1]
    return [(float(at), ranked[at]) for at in places]


def slowdowns(runs: Sequence[SimulatedRun]) -> Picture | None:
    """Run time over the best configuration's, worst first; None where no job is slow."""
    curves = {run.policy: _ranked([record.slowdown for record in run.records]) for run in runs}
    if max(points[0][1] for points in curves.values()) < 1 + 1e-3:
        return None
    return charts.lines(
        "Run time against the best GPUs", curves, x="jobs, worst first", y="times", from_zero=False
    )


def stranded(
    runs: Sequence[SimulatedRun], cluster: Mapping[str, NodeTopology]
) -> tuple[Picture, dict[str, list[Moment]]]:
    """GPUs that were free and of no use to any waiting job, over time; and the moments drawn.

    As long as jobs arrive; where all were submitted at once, until most have ended.
    """
    first, last = arriving_s(runs[0]) or mostly_over_s(runs)
    name, length = unit(last - first)
    by_policy = {run.policy: moments(run, cluster, first, last) for run in runs}
    curves = {policy: _means(some, first, length) for policy, some in by_policy.items()}
    return charts.lines("Stranded GPUs", curves, x=name, y="GPUs", is_step=True), by_policy


def _means(moments: Sequence[Moment], first_s: float, length: float) -> list[tuple[float, float]]:
    """(Share of the time, mean stranded GPUs) of parts of the moments, at most some `POINTS`."""
    step = max(1, len(moments) // (POINTS // 2))
    parts = [moments[at : at + step] for at in range(0, len(moments), step)]
    return [
        ((part[0].at_s - first_s) / length, fmean(one.stranded for one in part)) for part in parts
    ]


def users(
    run: SimulatedRun, reference: SimulatedRun, cluster: Mapping[str, NodeTopology]
) -> tuple[Picture | None, str]:
    """Bandwidth won and lost by user against another policy, and the same in words.

    None where no user's bandwidth differs, or the log names no users.
    """
    own, other = bandwidth_by_user(run, cluster), bandwidth_by_user(reference, cluster)
    change = {user: own[user] / other[user] - 1 for user in own if other.get(user)}
    if not change:
        return None, "The log names no users with jobs of several GPUs on a node."
    ranked = sorted(change, key=lambda user: -change[user])
    won = [user for user in ranked if change[user] > SMALLEST]
    lost = [user for user in ranked if change[user] < -SMALLEST]
    said = (
        f"{run.policy} against {reference.policy}: {len(won)} of {len(change)} users win"
        f" bandwidth, {len(lost)} lose, {len(change) - len(won) - len(lost)} see no difference."
    )
    drawn = {user: 100 * change[user] for user in [*won[:USERS], *lost[-USERS:]]}
    if not drawn:
        return None, said
    title = f"Bandwidth by user: {run.policy} against {reference.policy}"
    return rows.sideways(title, drawn, x="% of the effective bandwidth", said=_percent), said


def _percent(value: float) -> str:
    return f"{value:+.1f} %"


def use(run: SimulatedRun, cluster: Mapping[str, NodeTopology], gpus: int) -> Picture:
    """Who held which GPU when, of a few jobs on a few GPUs; else the use of each node over time."""
    names = sorted(cluster, key=natural)
    if gpus <= TIMELINE_GPUS and len(run.records) <= TIMELINE_JOBS:
        return _timeline(run, [(name, gpu) for name in names for gpu in range(cluster[name].gpus)])
    first, last = mostly_over_s([run])
    name, length = unit(last - first)
    shares = in_use(run, cluster, first, last, STRIP_PARTS)
    return rows.strips(
        f"GPUs in use: {run.policy}",
        _together(shares, names, cluster),
        end=(last - first) / length,
        x=name,
        what="in use",
    )


def _together(
    shares: Mapping[str, Sequence[float]],
    names: Sequence[str],
    cluster: Mapping[str, NodeTopology],
) -> dict[str, list[float]]:
    """Rows of one node, or of several neighbours by name, each by its GPUs."""
    count = min(NODE_ROWS, len(names))
    cuts = [len(names) * row // count for row in range(count + 1)]
    rows = {}
    for low, high in pairwise(cuts):
        some = names[low:high]
        gpus = sum(cluster[name].gpus for name in some)
        title = some[0] if len(some) == 1 else f"{some[0]} to {some[-1]}"
        parts = range(len(shares[some[0]]))
        rows[title] = [
            sum(shares[name][part] * cluster[name].gpus for name in some) / gpus for part in parts
        ]
    return rows


def _timeline(run: SimulatedRun, gpus: Sequence[tuple[str, int]]) -> Picture:
    place = {gpu: row for row, gpu in enumerate(gpus)}
    first, _ = mostly_over_s([run])
    name, length = unit(max(record.end_s for record in run.records) - first)
    held = [
        (
            place[node, gpu],
            (record.start_s - first) / length,
            (record.end_s - first) / length,
            number,
            record.job.called,
        )
        for number, record in enumerate(run.records)
        for node, some in record.placement.gpus.items()
        for gpu in some
    ]
    titles = [f"{node} GPU {gpu}" for node, gpu in gpus]
    return rows.timeline(f"Who held which GPU: {run.policy}", titles, held, x=name)
