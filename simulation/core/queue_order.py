"""The order of the queue: strict first in, first out, or EASY backfill (Lifka 1995).

EASY promises the first job that does not fit the nodes on which it fits earliest, by the
walltimes of what runs. Later jobs may start now if they end before that or use other nodes. In
both orders a job that its policy lets wait is passed, as in live Slurm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from simulation.core.jobs import SimJob
from simulation.core.occupancy import FreeCounts, Occupancy
from simulation.core.record import Running


def in_turn(
    jobs: Iterable[SimJob], cluster: Occupancy, running: Iterable[Running], now_s: float,
    ideal_s: Callable[[SimJob], float], *, easy: bool,
) -> Iterator[tuple[SimJob, frozenset[str]]]:  # fmt: skip
    """Those of the queued jobs that fit, one by one, and the nodes each may not use.

    The caller starts a job, or lets it wait, before it takes the next. `ideal_s` gives the run
    time to plan with for a job that has no walltime.
    """
    jobs = iter(jobs)
    for job in jobs:
        if cluster.counts.fits(job.gpus_per_node):
            yield job, frozenset()
            continue
        if not easy:
            return
        start_s, promised = _promise(job, cluster, running, now_s)
        for later in jobs:
            walltime = ideal_s(later) if later.walltime_s is None else later.walltime_s
            reserved = promised if now_s + walltime > start_s else frozenset()
            if not cluster.counts.fits(later.gpus_per_node):
                continue
            if not reserved or _counts_without(cluster, reserved).fits(later.gpus_per_node):
                yield later, reserved


def _counts_without(cluster: Occupancy, names: frozenset[str]) -> FreeCounts:
    return FreeCounts(free for name, free in cluster.free.items() if name not in names)


def _promise(
    job: SimJob, cluster: Occupancy, running: Iterable[Running], now_s: float
) -> tuple[float, frozenset[str]]:
    """When the job will fit at the latest, and the nodes it will have then.

    By planned ends: a job that outlives its walltime is taken to end now.
    """
    free = dict(cluster.free)
    counts = FreeCounts(free.values())
    at_s = now_s
    for other in sorted(running, key=lambda other: other.planned_end_s()):
        at_s = max(at_s, other.planned_end_s())
        for name, mask in other.masks.items():
            counts.move(free[name], free[name] + mask.bit_count())
            free[name] += mask.bit_count()
        if counts.fits(job.gpus_per_node):
            break
    # The fullest nodes that will do, so that most of the room stays for others.
    promised: set[str] = set()
    for count in sorted(job.gpus_per_node, reverse=True):
        fitting = (name for name in free if free[name] >= count and name not in promised)
        promised.add(min(fitting, key=lambda name: (free[name], name)))
    return at_s, frozenset(promised)
