"""Which policy to take, in words: what it wins and costs against the one a site has now.

Two runs of one log are compared job by job. The log is cut into equal parts in the order of
submits, and a mean difference counts where its interval over these parts (batch means: Law,
Simulation Modeling and Analysis, chapter 9) is all on one side of 0 and it is more than a hundredth
of the greater mean. Anything less is called no difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import NamedTuple

from gres_topology import NodeTopology
from simulation.core.link_quality import share_of
from simulation.core.record import Record, SimulatedRun
from simulation.report.breakdown import bandwidth_by_user, figures, size_of
from simulation.report.metrics import summary
from simulation.report.words import points, share, time

#: Fewer jobs than this are too few to recommend anything by.
FEWEST = 100
#: Parts of the log, with which probability an interval misses the truth, and the part of a mean
#: from which a difference counts.
PARTS, ERROR, SMALLEST = 20, 0.05, 0.01
#: Student's t of PARTS - 1 degrees of freedom, below which all but half of ERROR lies.
T_QUANTILE = 2.0930240544083074
#: Waits that differ by less than this many seconds are alike, whatever they were.
SMALLEST_WAIT_S = 1.0

#: Job id -> its figure.
Figures = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean figure of one policy beside that of another, over the jobs that have it in both."""

    own: float
    other: float
    #: Whether the two differ by more than chance.
    counts: bool
    #: Half of the interval of `own - other`; None where there are too few jobs for one.
    half: float | None = None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Between which `own - other` lies."""
        less = self.own - self.other
        return None if self.half is None else (less - self.half, less + self.half)

    @property
    def change(self) -> float:
        """-0.5: half of it; 0 where they do not differ."""
        return self.own / self.other - 1 if self.counts and self.other else 0.0


def difference(own: Figures, other: Figures, smallest: float = 0.0) -> Difference:
    """Compare two policies' figures; both in the order of submits."""
    jobs = [job for job in own if job in other]
    if not jobs:
        return Difference(0.0, 0.0, counts=False)
    mine, its = fmean(own[job] for job in jobs), fmean(other[job] for job in jobs)
    if len(jobs) < PARTS:
        return Difference(mine, its, counts=False)
    cuts = [len(jobs) * part // PARTS for part in range(PARTS + 1)]
    parts = [fmean(own[job] - other[job] for job in jobs[low:high]) for low, high in pairwise(cuts)]
    half = T_QUANTILE * stdev(parts) / math.sqrt(PARTS)
    least = max(smallest, SMALLEST * max(abs(mine), abs(its)), half)
    return Difference(mine, its, abs(mine - its) > least, half)


class Compared:
    """The runs of one log, job by job."""

    def __init__(self, runs: Sequence[SimulatedRun], cluster: Mapping[str, NodeTopology]) -> None:
        self.runs = {run.policy: run for run in runs}
        self.cluster = cluster
        self.waits = {run.policy: _by_job(run, lambda record: record.waited_s) for run in runs}
        #: From submit to end.
        self.times = {
            run.policy: _by_job(run, lambda record: record.end_s - record.job.submit_s)
            for run in runs
        }
        self.shares = {run.policy: _by_job(run, self._share) for run in runs}
        self._figures: dict[str, dict[str, float | None]] = {}

    def figures(self, policy: str) -> dict[str, float | None]:
        """The figures of a policy's table, reckoned once."""
        if policy not in self._figures:
            self._figures[policy] = figures(self.runs[policy], self.cluster)
        return self._figures[policy]

    def _share(self, record: Record) -> float | None:
        """The job's bandwidth as a share of the best its nodes could give; None without a ring."""
        some = [
            share_of(self.cluster[name], sum(1 << gpu for gpu in gpus))
            for name, gpus in record.placement.gpus.items()
            if len(gpus) > 1 and self.cluster[name].gpus <= 16
        ]
        return fmean(some) if some else None

    def best(self, figures: Mapping[str, Figures], *, is_high: bool = False) -> list[str]:
        """The policy with the best mean, then those that do not differ from it."""
        means = {name: fmean(some.values()) if some else 0.0 for name, some in figures.items()}
        first = (max if is_high else min)(means, key=lambda name: means[name])
        return [first] + [
            name
            for name in figures
            if name != first and not self.differ(figures, name, first).counts
        ]

    def differ(self, figures: Mapping[str, Figures], own: str, other: str) -> Difference:
        """One policy's figure beside another's."""
        smallest = 0.0 if figures is self.shares else SMALLEST_WAIT_S
        return difference(figures[own], figures[other], smallest)


def _by_job(run: SimulatedRun, figure: Callable[[Record], float | None]) -> dict[int, float]:
    records = sorted(run.records, key=lambda record: (record.job.submit_s, record.job.job_id))
    values = ((record.job.job_id, figure(record)) for record in records)
    return {job: value for job, value in values if value is not None}


def reference_of(names: Sequence[str]) -> str:
    """What the others are compared with: stock Slurm, else first-fit, else the first one."""
    stock = [name for name in names if name.startswith("stock")]
    return stock[0] if stock else "first-fit" if "first-fit" in names else names[0]


def recommendation(
    runs: Sequence[SimulatedRun],
    cluster: Mapping[str, NodeTopology],
    facts: Mapping[str, object],
) -> str:
    """One paragraph: which policy, what it wins and costs, and under which conditions."""
    names = [run.policy for run in runs]
    if len(names) < 2:
        return (
            "Nothing to compare: only one policy was run. Name others with --policy; `stock` is"
            " Slurm without us."
        )
    jobs = len(runs[0].records)
    if jobs < FEWEST:
        return (
            f"No recommendation: {jobs} jobs are too few to tell policies from chance; it takes"
            f" {FEWEST}. The figures are what these jobs would have got."
        )
    compared, reference = Compared(runs, cluster), reference_of(names)
    feels_links = bool(facts.get("communication"))
    said = _advice(compared, reference, feels_links)
    return " ".join([*said, _BRACKETS, *_conditions(runs, cluster, facts, feels_links)])


_BRACKETS = (
    f"In brackets stands where a difference lies with {100 * (1 - ERROR):.0f} % certainty, as far"
    " as this log tells."
)


def differences(
    runs: Sequence[SimulatedRun], cluster: Mapping[str, NodeTopology]
) -> dict[str, dict[str, dict[str, object]]]:
    """{policy: {metric: {own, other, low, high, counts}}}, against `reference_of` the policies.

    `low` and `high` bound `own - other`; None where too few jobs have the figure.
    """
    if len(runs) < 2 or len(runs[0].records) < FEWEST:
        return {}
    compared, reference = Compared(runs, cluster), reference_of([run.policy for run in runs])
    figures = {
        "wait_mean_s": compared.waits,
        "submit_to_end_mean_s": compared.times,
        "bandwidth_share_by_job": compared.shares,
    }
    return {
        name: {
            metric: _as_row(compared.differ(some, name, reference))
            for metric, some in figures.items()
        }
        for name in compared.runs
        if name != reference
    }


def _as_row(one: Difference) -> dict[str, object]:
    low, high = one.bounds or (None, None)
    return {"own": one.own, "other": one.other, "low": low, "high": high, "counts": one.counts}


def _advice(compared: Compared, reference: str, feels_links: bool) -> list[str]:
    times = compared.times if feels_links else compared.waits
    soonest = compared.best(times)
    has_rings = any(compared.shares.values())
    widest = compared.best(compared.shares, is_high=True) if has_rings else soonest
    both = [name for name in soonest if name in widest]
    if len(both) == len(compared.runs):
        said = [f"No difference can be told between {', '.join(both)}: keep {reference}."]
    elif reference in both:
        said = [f"Keep {reference}: no other policy beats it beyond chance."]
    else:
        said = []
    if said:
        return said + [
            line
            for name in compared.runs
            if name != reference
            for line in _against(compared, name, reference)
        ]
    if both:
        figures = (times, compared.shares)
        first = max(both, key=lambda name: _worth(compared, figures, name, reference))
        others = [name for name in both if name != first]
        alike = f", or {' or '.join(others)}: no difference between them can be told"
        said = [f"Take {first}{alike if others else ''}."]
        return [*said, *_against(compared, first, reference)]
    fast, wide = soonest[0], widest[0]
    said = [f"Take {fast} if jobs shall get through soonest, {wide} if links matter more to them."]
    for name in (fast, wide):
        said += [] if name == reference else _against(compared, name, reference)
    return said


def _worth(
    compared: Compared, figures: Sequence[Mapping[str, Figures]], name: str, reference: str
) -> tuple[float, ...]:
    """In how many figures a policy differs from the reference; of equals the better figures."""
    times, shares = figures
    return (
        sum(compared.differ(some, name, reference).counts for some in figures),
        -fmean(times[name].values()),
        fmean(shares[name].values()) if shares[name] else 0.0,
    )


def _against(compared: Compared, name: str, reference: str) -> list[str]:
    """What a policy wins and costs."""
    waits = compared.differ(compared.waits, name, reference)
    times = compared.differ(compared.times, name, reference)
    shares = compared.differ(compared.shares, name, reference)
    said = []
    if waits.counts:
        beside = f"{time(waits.own)} instead of {time(waits.other)}"
        said.append(f"jobs wait {beside}{_sure(waits, time)}")
    else:
        beside = f"{time(waits.own)} instead of {time(waits.other)}"
        told = (beside, _bounds(waits, time))
        is_same = not any(waits.bounds or (1.0,))
        said.append(
            "jobs wait as long"
            if is_same
            else f"no difference in waits can be told ({': '.join(filter(None, told))})"
        )
    if times.counts and not waits.counts:
        beside = f"{time(times.own)} instead of {time(times.other)}"
        said.append(f"take {beside}{_sure(times, time)} from submit to end")
    if shares.counts:
        # As the table has it, where a job of two nodes counts twice.
        both = (compared.figures(run)["bandwidth_share"] or 0.0 for run in (name, reference))
        own, other = both
        ideal = f"{share(own)} instead of {share(other)} of the ideal bandwidth"
        said.append(f"jobs of several GPUs on a node get {ideal}{_sure(shares, points)}")
    elif compared.shares[name]:
        said.append(f"links are as good{_sure(shares, points)}")
    return [
        f"With {name} instead of {reference}, on average {_listed(said)}.",
        *_losers(compared, name, reference),
        *_worse(compared, name, reference),
    ]


def _sure(one: Difference, shown: Callable[[float], str]) -> str:
    """In brackets where the difference lies, as far as the jobs tell."""
    said = _bounds(one, shown)
    return f" ({said})" if said else ""


def _bounds(one: Difference, shown: Callable[[float], str]) -> str:
    """Where the difference lies; "" where it is none, or not known."""
    if one.bounds is None or not any(one.bounds):
        return ""
    low, high = one.bounds
    if low < 0 < high:
        return f"{shown(-low)} less to {shown(high)} more"
    near, far = sorted((abs(low), abs(high)))
    return f"{shown(near)} to {shown(far)} {'more' if low >= 0 else 'less'}"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)


def _losers(compared: Compared, name: str, reference: str) -> list[str]:
    """Sizes of jobs that wait longer and users who lose bandwidth, though the mean may win."""
    own, other = compared.runs[name], compared.runs[reference]
    size_by_job = {record.job.job_id: size_of(record) for record in own.records}
    sizes: dict[str, dict[int, float]] = {}
    for job, wait in compared.waits[name].items():
        sizes.setdefault(size_by_job[job], {})[job] = wait
    waits = {
        size: difference(some, compared.waits[reference], SMALLEST_WAIT_S)
        for size, some in sizes.items()
    }
    longer = {size: one for size, one in waits.items() if one.counts and one.own > one.other}
    said = []
    if longer:
        worst = max(longer, key=lambda size: longer[size].own - longer[size].other)
        beside = f"{time(longer[worst].own)} instead of {time(longer[worst].other)}"
        said.append(f"Jobs of {worst} wait longer: {beside}.")
    users = bandwidth_by_user(own, compared.cluster)
    before = bandwidth_by_user(other, compared.cluster)
    lost = [user for user in users if user in before and users[user] < 0.99 * before[user]]
    if lost:
        said.append(f"{len(lost)} of {len(users)} users lose more than 1 % of their bandwidth.")
    return said


def _worse(compared: Compared, name: str, reference: str) -> list[str]:
    """Which figures of the table got worse, one by one; of these no interval is known."""
    own, other = compared.figures(name), compared.figures(reference)
    said = []
    for one in _WORSE:
        mine, its = own[one.metric], other[one.metric]
        if mine is None or its is None:
            continue
        if one.metric == "busy_while_arriving" and own["slowdown_mean"] != other["slowdown_mean"]:
            continue  # Jobs on better links take less GPU time for the same work.
        if one.sign * (mine - its) > max(one.least, one.part * abs(its)):
            said.append(f"{one.called} {one.shown(mine)} instead of {one.shown(its)}")
    if not said:
        return []
    return [f"Worse with {name}, each a single figure of this log: {_listed(said)}."]


def _count(value: float) -> str:
    return f"{value:,.0f}"


class _Figure(NamedTuple):
    """A figure of the table that is told where it got worse."""

    metric: str
    called: str
    shown: Callable[[float], str]
    #: 1 where more is worse, -1 where less is.
    sign: int
    #: From which change on, and from which part of the other's.
    least: float
    part: float = 0.0


_WORSE = (
    _Figure("wait_p95_s", "95 of 100 wait at most", time, 1, SMALLEST_WAIT_S, 0.05),
    _Figure("makespan_s", "the last job ends after", time, 1, SMALLEST_WAIT_S, 0.01),
    _Figure("busy_while_arriving", "GPUs in use while jobs arrive", share, -1, 0.01),
    _Figure("stranded_share", "GPUs stranded", share, 1, 0.01),
    _Figure("largest_gpus", "the largest job that fits has", _count, -1, 0.5, 0.1),
    _Figure("pcie_rings", "rings over PCIe", share, 1, 0.01),
)


def _conditions(
    runs: Sequence[SimulatedRun],
    cluster: Mapping[str, NodeTopology],
    facts: Mapping[str, object],
    feels_links: bool,
) -> list[str]:
    """Under which the above holds."""
    figures = [summary(run, cluster) for run in runs]
    busy = max((one["busy_while_arriving"] or 0.0 for one in figures), default=0.0)
    said = []
    if max(one["wait_mean_s"] or 0.0 for one in figures) < SMALLEST_WAIT_S:
        said.append(
            f"Hardly a job waits here ({share(busy)} of the GPU time is in use while jobs"
            " arrive), so nothing is known of waits on a busier cluster: try --load 0.9."
        )
    if feels_links:
        said.append(
            f"That a part of {facts['communication']} of each job's time grows as its bandwidth"
            " shrinks is assumed for all jobs alike; the log does not tell."
        )
    else:
        said.append(
            "Jobs last as long as in the log on whatever GPUs, so better links shorten no wait"
            " here; --communication says otherwise."
        )
    if facts.get("queue", "easy") in ("easy", "fifo"):
        said.append(
            "CPUs, memory, partitions, priorities and limits are not simulated without"
            " --slurm-conf, and another month has other jobs."
        )
    else:
        said.append("Another month has other jobs.")
    return said
