"""order-philly, order-openb, order-mix: waits on one pool of GPUs under each order of the queue.

order-nodes: the same where the GPUs are those of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

import numpy as np

from gres_topology.catalog import load as load_machine
from papers.experiments import Result, openb, philly
from papers.experiments.experiment import averaged
from papers.experiments.order.arrivals import Arrivals
from papers.experiments.order.pool import Pool
from policies.order.passing import BOUND_S, MULTIPLE, Passing, Reckoned
from simulation.core.jobs import SimJob, at_load, mixed_jobs
from simulation.core.queue_order import PassingQueue
from simulation.core.steps import each
from simulation.models.placing import Simulator
from simulation.stock import policy_named

#: A job's limit over what it takes: the uniform multiples of Mu'alem and Feitelson (IEEE TPDS 12,
#: 2001, section 4), or two weeks for all.
LIMITS = {"5": 5.0, "1": 1.0, "2": 2.0, "10": 10.0, "alike": None}
ALIKE_S = 14 * 86_400.0
#: Of the users this part is left out in each resampling; of jobs without a user, of the jobs.
LEFT_OUT = 0.2
PHILLY_GPUS, OPENB_GPUS, MIX_GPUS, MIX_JOBS = 2490, 64, 64, 3000
#: OpenB's GPUs as nodes of eight.
NODES, MACHINE = 8, "dgx1v"

_Figures = dict[str, float]

NOTES = (
    "One pool of GPUs, any of which do for any job; waits are those of all jobs of the log.",
    "Each seed leaves a fifth of the users out (of the jobs where none has a user) and stretches"
    " the times between submits so that the others bring the load.",
    "The logs have no time limits: a job's is what it takes times a number drawn evenly from 1"
    " to --limits (Mu'alem and Feitelson 2001), or two weeks for all (alike).",
    "backfill is EASY by these limits; predicted-limits and predicted-predictions let shorter work"
    " pass on top of it by at most --bound minutes, strict-limits without backfill. predicted-told"
    " passes by what jobs really take: no prediction lets more pass within the bound. A prediction"
    " counts where the limit is at most --multiple times as long. shortest and"
    " smallest know durations, and have no bound.",
    "held up: for how long a job could have started but for those that had passed it.",
    "later: of all jobs those that start later than under the order it is compared with (backfill;"
    " for strict-limits arrival) by more than the bound. nudged is backfill with every other job"
    " submitted a second later.",
)

ON_NODES = (
    "OpenB's tasks with GPUs on eight nodes of eight, each on the fullest node that will do.",
    *NOTES[1:3],
    "passing lets shorter work pass by limits by at most --bound minutes; backfill is EASY. nudged:"
    " every other job submitted a second later, and nobody passes.",
    "held up: for how long a job waited from when it could first have started but for those that"
    " had passed it.",
    "later: of all jobs those that start later than without passing by more than the bound.",
)


def on_philly(seeds: Sequence[int], **setting: str) -> Result:
    """Philly on all its 2,490 GPUs."""
    return _run("order-philly", lambda _: philly.trace().jobs, PHILLY_GPUS, seeds, **setting)


def on_openb(seeds: Sequence[int], **setting: str) -> Result:
    """OpenB's tasks with GPUs, parts of one rounded up, on 64 GPUs."""
    return _run("order-openb", lambda _: _openb(), OPENB_GPUS, seeds, **setting)


def on_mix(seeds: Sequence[int], **setting: str) -> Result:
    """3,000 jobs of MAPA's mix that arrive one by one, on 64 GPUs."""
    return _run("order-mix", _mix, MIX_GPUS, seeds, **setting)


def on_nodes(
    seeds: Sequence[int], load: str = "60", limits: str = "5", bound: str = "10"
) -> Result:
    """OpenB's tasks on eight nodes of eight GPUs."""
    rows: dict[str, list[_Figures]] = {}
    for seed in each(seeds):
        jobs = at_load(resampled(_openb(), seed), OPENB_GPUS, int(load) / 100)
        found = orders_on_nodes(with_limits(jobs, seed, limits), 60.0 * int(bound))
        for order, figures in found.items():
            rows.setdefault(order, []).append(figures)
    return Result("order-nodes", tuple(seeds), averaged(rows), {}, ON_NODES)


def orders_on_nodes(jobs: Sequence[SimJob], bound_s: float = BOUND_S) -> dict[str, _Figures]:
    """Order -> the figures of `orders`, on nodes."""
    found: dict[str, _Figures] = {}
    for base, easy in (("arrival", False), ("backfill", True)):
        starts = _on_nodes(jobs, easy)
        queue = PassingQueue(Passing(bound_s))
        passing = _figures(jobs, _on_nodes(jobs, easy, queue), starts, bound_s)
        nudged = _nudged(jobs)
        found |= {
            base: _figures(jobs, starts, starts, bound_s),
            f"{base}, nudged": _figures(nudged, _on_nodes(nudged, easy), starts, bound_s),
            f"{base}, passing": passing | {"held_up_most_s": max(queue.held_up_s.values())},
        }
    return found


def _on_nodes(
    jobs: Sequence[SimJob], easy: bool, queue: PassingQueue | None = None
) -> dict[int, float]:
    """When each job starts."""
    nodes = dict.fromkeys((f"n{number}" for number in range(NODES)), load_machine(MACHINE))
    run = Simulator(nodes, policy_named("best-fit"), easy=easy, passing=queue).run(jobs)
    return {record.job.job_id: record.start_s for record in run.records}


def _nudged(jobs: Sequence[SimJob]) -> list[SimJob]:
    """Every other job is submitted a second later."""
    return [replace(job, submit_s=job.submit_s + at % 2) for at, job in enumerate(jobs)]


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
    name: str,
    log: Callable[[int], list[SimJob]],
    gpus: int,
    seeds: Sequence[int],
    load: str = "90",
    limits: str = "5",
    bound: str = "10",
    multiple: str = "2",
) -> Result:
    rows: dict[str, list[dict[str, float]]] = {}
    for seed in each(seeds):
        jobs = at_load(resampled(log(seed), seed), gpus, int(load) / 100)
        given = with_limits(jobs, seed, limits)
        found = orders(given, gpus, 60.0 * int(bound), float(multiple))
        for order, figures in found.items():
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


def orders(
    jobs: Sequence[SimJob], gpus: int, bound_s: float = BOUND_S, multiple: float = MULTIPLE
) -> dict[str, dict[str, float]]:
    """Order -> its waits (seconds), how many start later than the bound allows, errors."""
    arrival = Pool(gpus).run(jobs)
    backfill = Pool(gpus, backfill=True).run(jobs)
    nudged = _nudged(jobs)

    def figures(starts: Mapping[int, float], base: Mapping[int, float] = arrival) -> _Figures:
        return _figures(jobs, starts, base, bound_s)

    def passing(
        by: Reckoned = "limits", *, is_strict: bool = False, told: bool = False
    ) -> _Figures:
        rule = Passing(bound_s, by, multiple=multiple)
        arrivals = Arrivals(gpus) if is_strict else None
        pool = Pool(gpus, not is_strict, rule, told, arrivals)
        errors = rule.learning.durations.errors
        return figures(pool.run(jobs), arrival if is_strict else backfill) | {
            "held_up_most_s": max(pool.held_up_s.values(), default=0.0),
            "estimates_off_by": errors.median_ratio() or 0.0,
            "within_median": errors.coverage()[0.5],
            "within_90": errors.coverage()[0.9],
        }

    return {
        "arrival": figures(arrival),
        "backfill": figures(backfill),
        "nudged": _figures(nudged, Pool(gpus, backfill=True).run(nudged), backfill, bound_s),
        "predicted-limits": passing(),
        "predicted-predictions": passing("predictions"),
        "predicted-told": passing(told=True),
        "strict-limits": passing(is_strict=True),
        "shortest": figures(Pool(gpus, key=lambda job: job.duration_s).run(jobs)),
        "smallest": figures(
            Pool(gpus, key=lambda job: job.duration_s * sum(job.gpus_per_node)).run(jobs)
        ),
    }


def _figures(
    jobs: Sequence[SimJob], starts: Mapping[int, float], base: Mapping[int, float], bound_s: float
) -> _Figures:
    waits = np.array([starts[job.job_id] - job.submit_s for job in jobs])
    later = [starts[job.job_id] - base[job.job_id] for job in jobs]
    return {
        "mean_wait_s": float(waits.mean()),
        "p99_wait_s": float(np.quantile(waits, 0.99)),
        "later_than_bound": sum(one > bound_s + 1e-6 for one in later) / len(later),
        "latest_s": max(0.0, max(later)),
    }
