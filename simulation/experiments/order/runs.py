"""order-philly, order-openb, order-mix: waits on one pool of GPUs under each order of the queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import cast

import numpy as np

from policies.order.arrivals import Arrivals
from policies.order.passing import BOUND_S, Passing, Reckoned
from simulation.core.jobs import SimJob, at_load, mixed_jobs
from simulation.core.steps import each
from simulation.experiments import Result, openb
from simulation.experiments.experiment import averaged
from simulation.experiments.order.pool import Pool
from simulation.traces import philly

#: A job's limit over what it takes: the uniform multiples of Mu'alem and Feitelson (IEEE TPDS 12,
#: 2001, section 4), or two weeks for all.
LIMITS = {"5": 5.0, "1": 1.0, "2": 2.0, "10": 10.0, "alike": None}
ALIKE_S = 14 * 86_400.0
#: Of the users this part is left out in each resampling; of jobs without a user, of the jobs.
LEFT_OUT = 0.2
PHILLY_GPUS, OPENB_GPUS, MIX_GPUS, MIX_JOBS = 2490, 64, 64, 3000

NOTES = (
    "One pool of GPUs, any of which do for any job; waits are those of all jobs of the log.",
    "Each seed leaves a fifth of the users out (of the jobs where none has a user) and stretches"
    " the times between submits so that the others bring the load.",
    "The logs have no time limits: a job's is what it takes times a number drawn evenly from 1"
    " to --limits (Mu'alem and Feitelson 2001), or two weeks for all (alike).",
    "backfill is EASY by these limits; predicted-limits and predicted-predictions let shorter work"
    " pass on top of it, strict-limits without backfill. shortest and smallest know durations.",
    "held up: for how long a job could have started but for those that had passed it.",
    "later: of all jobs those that start later than under the order it is compared with (backfill;"
    " for strict-limits arrival) by more than the bound. nudged is backfill with every other job"
    " submitted a second later.",
)


def on_philly(seeds: Sequence[int], load: str = "90", limits: str = "5") -> Result:
    """Philly on all its 2,490 GPUs."""
    return _run("order-philly", lambda _: philly.trace().jobs, PHILLY_GPUS, seeds, load, limits)


def on_openb(seeds: Sequence[int], load: str = "90", limits: str = "5") -> Result:
    """OpenB's tasks with GPUs, parts of one rounded up, on 64 GPUs."""
    return _run("order-openb", lambda _: _openb(), OPENB_GPUS, seeds, load, limits)


def on_mix(seeds: Sequence[int], load: str = "90", limits: str = "5") -> Result:
    """3,000 jobs of MAPA's mix that arrive one by one, on 64 GPUs."""
    return _run("order-mix", _mix, MIX_GPUS, seeds, load, limits)


def _openb() -> list[SimJob]:
    tasks = [task for task in openb.tasks(openb.nodes(1213)) if task.gpus]
    return [
        SimJob(number, (task.gpus,), task.duration_s, task.submit_s)
        for number, task in enumerate(tasks)
    ]


def _mix(seed: int) -> list[SimJob]:
    draw, at_s, jobs = Random(seed), 0.0, []
    for job in mixed_jobs(seed, MIX_JOBS):
        at_s += draw.expovariate(1.0)
        jobs.append(replace(job, submit_s=at_s))
    return jobs


def _run(
    name: str, log: Callable[[int], list[SimJob]], gpus: int, seeds: Sequence[int], load: str,
    limits: str,
) -> Result:  # fmt: skip
    rows: dict[str, list[dict[str, float]]] = {}
    for seed in each(seeds):
        jobs = at_load(resampled(log(seed), seed), gpus, int(load) / 100)
        for order, figures in orders(with_limits(jobs, seed, limits), gpus).items():
            rows.setdefault(order, []).append(figures)
    return Result(name, tuple(seeds), averaged(rows), {}, NOTES)


def resampled(jobs: Sequence[SimJob], seed: int) -> list[SimJob]:
    """The jobs of the users that this seed leaves in."""
    draw = Random(seed)
    groups = sorted({job.user or str(job.job_id) for job in jobs})
    out = set(draw.sample(groups, round(LEFT_OUT * len(groups))))
    return [job for job in jobs if (job.user or str(job.job_id)) not in out]


def with_limits(jobs: Sequence[SimJob], seed: int, limits: str) -> list[SimJob]:
    """The same jobs with time limits, never below what they take."""
    most, draw = LIMITS[limits], Random(seed)
    if most is None:
        return [replace(job, walltime_s=max(ALIKE_S, job.duration_s)) for job in jobs]
    return [replace(job, walltime_s=job.duration_s * draw.uniform(1, most)) for job in jobs]


def orders(jobs: Sequence[SimJob], gpus: int) -> dict[str, dict[str, float]]:
    """Order -> its waits (seconds), how many start later than the bound allows, errors."""
    arrival = Pool(gpus).run(jobs)
    backfill = Pool(gpus, backfill=True).run(jobs)
    nudged = [replace(job, submit_s=job.submit_s + at % 2) for at, job in enumerate(jobs)]
    found = {
        "arrival": _figures(jobs, arrival, arrival),
        "backfill": _figures(jobs, backfill, backfill),
        "nudged": _figures(nudged, Pool(gpus, backfill=True).run(nudged), backfill),
    }
    for by in ("limits", "predictions"):
        found[f"predicted-{by}"] = _passing(jobs, gpus, by, backfill, is_strict=False)
    found["strict-limits"] = _passing(jobs, gpus, "limits", arrival, is_strict=True)
    keys: Mapping[str, Callable[[SimJob], float]] = {
        "shortest": lambda job: job.duration_s,
        "smallest": lambda job: job.duration_s * sum(job.gpus_per_node),
    }
    for order, key in keys.items():
        found[order] = _figures(jobs, Pool(gpus, key=key).run(jobs), arrival)
    return found


def _passing(
    jobs: Sequence[SimJob], gpus: int, by: str, base: Mapping[int, float], *, is_strict: bool
) -> dict[str, float]:
    passing = Passing(by=cast(Reckoned, by))
    arrivals = Arrivals(gpus) if is_strict else None
    pool = Pool(gpus, backfill=not is_strict, passing=passing, arrivals=arrivals)
    figures = _figures(jobs, pool.run(jobs), base)
    errors = passing.learning.durations.errors
    return figures | {
        "held_up_most_s": max(pool.held_up_s.values(), default=0.0),
        "estimates_off_by": errors.median_ratio() or 0.0,
        "within_median": errors.coverage()[0.5],
        "within_90": errors.coverage()[0.9],
    }


def _figures(
    jobs: Sequence[SimJob], starts: Mapping[int, float], base: Mapping[int, float]
) -> dict[str, float]:
    waits = np.array([starts[job.job_id] - job.submit_s for job in jobs])
    later = [starts[job.job_id] - base[job.job_id] for job in jobs]
    return {
        "mean_wait_s": float(waits.mean()),
        "p99_wait_s": float(np.quantile(waits, 0.99)),
        "later_than_bound": sum(one > BOUND_S + 1e-6 for one in later) / len(later),
        "latest_s": max(0.0, max(later)),
    }
