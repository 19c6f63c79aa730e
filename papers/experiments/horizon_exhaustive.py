"""How near placements come to the best there are: a few jobs on one node, all plans tried.

The plans keep the order of arrival, as the queue does without backfill. A job may wait for better
GPUs in them, and every run time is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random
from statistics import fmean
from typing import NamedTuple

from gres_topology import NodeTopology
from gres_topology.catalog import load as machine_of
from papers.experiments.experiment import Result, averaged
from papers.experiments.horizon_waits import COMMUNICATION, DURATIONS, LIMITS, SIZES, Told
from policies.contract.bits import gpus_of, mask_of, subsets
from policies.contract.hint_keys import communication_in
from policies.horizon.communication import run_s
from policies.registry import registry
from simulation.core.jobs import SimJob
from simulation.core.link_quality import judge
from simulation.core.requests import hint_values
from simulation.core.steps import each
from simulation.models.placing import Simulator

JOBS = 6
#: Seconds between submits, on the average: jobs wait on every machine.
PAUSE_S = 20.0
#: Equal but for rounding; and as good as equal: a thousandth longer.
ALIKE, NEAR = 1e-9, 1e-3

NOTES = (
    f"{JOBS} jobs of one to ten minutes on one node, 20 s apart on the average, first in, first"
    " out; run times by Amdahl's law with shares of 0.05 to 0.6, as in horizon-waits.",
    "soonest: of all plans the one with the least mean time from submit to end. straightest: the"
    " largest mean share of the ideal bandwidth, no job waiting for better GPUs.",
    "later: how much longer than in `soonest` it is from submit to end; at-best: the part of the"
    " instances in which that is a thousandth at most. less-share: by how much its share is below"
    " that of `straightest`.",
    "horizon-told: horizon is told run times and what jobs communicate. Others may pass a job that"
    " horizon lets wait; no plan has that, so horizon can be ahead of them all.",
)


class Plan(NamedTuple):
    """Each job's GPUs (mask), start and end, in the order of arrival, and what it costs."""

    cost: float
    runs: tuple[tuple[int, float, float], ...]


class _State(NamedTuple):
    """What is planned of the first jobs. `free_s`: when each GPU is free again."""

    at_s: float
    free_s: tuple[float, ...]
    cost: float
    runs: tuple[tuple[int, float, float], ...]


class Search:
    """All plans of these jobs on an empty node, by depth, leaving out what cannot be the best.

    `is_by_share`: the largest mean share where every job starts at once, else the soonest ends.
    """

    def __init__(
        self, topology: NodeTopology, jobs: Sequence[SimJob], *, is_by_share: bool = False
    ) -> None:
        self._jobs, self._gpus, self._is_by_share = jobs, topology.gpus, is_by_share
        self._sets: dict[int, list[tuple[int, tuple[int, ...], float]]] = {}
        for count in {job.gpus_per_node[0] for job in jobs}:
            masks = [int(mask) for mask in subsets(topology.gpus, count)]
            found = [(mask, gpus_of(mask), judge(topology, gpus_of(mask)).share) for mask in masks]
            self._sets[count] = sorted(found, key=lambda one: -one[2])
        self._best = Plan(float("inf"), ())
        #: Jobs planned, what is free when -> the least cost with which it was reached.
        self._reached: dict[tuple[int, float, tuple[float, ...]], float] = {}

    def best(self) -> Plan:
        """The plan with the least cost: the sum of times from submit to end, or of shares lost."""
        self._go(_State(0.0, (0.0,) * self._gpus, 0.0, ()))
        return self._best

    def _go(self, state: _State) -> None:
        number = len(state.runs)
        if number == len(self._jobs):
            if state.cost < self._best.cost - ALIKE:
                self._best = Plan(state.cost, state.runs)
            return
        key = (number, state.at_s, state.free_s)
        if self._reached.get(key, float("inf")) <= state.cost + ALIKE:
            return
        self._reached[key] = state.cost
        for bound, after in sorted(self._next(state, self._jobs[number]), key=lambda pair: pair[0]):
            if bound >= self._best.cost - ALIKE:
                break
            self._go(after)

    def _next(self, state: _State, job: SimJob) -> list[tuple[float, _State]]:
        """One more job on each set, with what the whole plan costs at least."""
        count, now_s = job.gpus_per_node[0], max(state.at_s, job.submit_s)
        earliest_s = max(now_s, sorted(state.free_s)[count - 1])
        found, seen = [], set()
        for mask, gpus, share in self._sets[count]:
            start_s = max(now_s, *(state.free_s[gpu] for gpu in gpus))
            if self._is_by_share and start_s > earliest_s:
                continue
            end_s = start_s + took_s(job, share)
            # What was free before the job starts is free for all who come later.
            free_s = tuple(
                end_s if mask >> gpu & 1 else max(start_s, at_s)
                for gpu, at_s in enumerate(state.free_s)
            )
            if (start_s, free_s) in seen:
                continue
            seen.add((start_s, free_s))
            lost = (1 - share) * (count > 1) if self._is_by_share else end_s - job.submit_s
            runs = (*state.runs, (mask, start_s, end_s))
            after = _State(start_s, free_s, state.cost + lost, runs)
            found.append((after.cost + self._least(after), after))
        return found

    def _least(self, state: _State) -> float:
        """What the other jobs cost at least: each as if the others between took no GPUs."""
        if self._is_by_share:
            return 0.0
        free_s, cost = sorted(state.free_s), 0.0
        for job in self._jobs[len(state.runs) :]:
            start_s = max(state.at_s, job.submit_s, free_s[job.gpus_per_node[0] - 1])
            cost += start_s + took_s(job, 1.0) - job.submit_s
        return cost


def took_s(job: SimJob, share: float) -> float:
    """Its run time with this share of the ideal bandwidth."""
    return run_s(job.duration_s, communication_in(hint_values(job.hint)) or 0.0, share)


def drawn(seed: int, machine: str) -> list[SimJob]:
    """One instance; the hints say what is true, limits are longer."""
    draw, at_s, jobs = Random(seed), 0.0, []
    for number in range(1, JOBS + 1):
        lasts_s = float(draw.randint(*DURATIONS["minutes"]))
        gpus = draw.choice(SIZES[machine])
        hint = f"communication={draw.choice(COMMUNICATION)}" if gpus > 1 else ""
        limit_s = lasts_s * draw.uniform(*LIMITS)
        jobs.append(SimJob(number, (gpus,), lasts_s, at_s, hint, walltime_s=limit_s))
        at_s += draw.expovariate(1 / PAUSE_S)
    return jobs


def run(seeds: Sequence[int], machine: str = "dgx1v") -> Result:
    """The policies and the best plans on the same jobs."""
    rows: dict[str, list[dict[str, float]]] = {}
    topology = machine_of(machine)
    for seed in each(seeds):
        jobs = drawn(seed, machine)
        plans = {
            "soonest": Search(topology, jobs).best().runs,
            "straightest": Search(topology, jobs, is_by_share=True).best().runs,
        }
        untold = [replace(job, hint="") for job in jobs]
        exact = [replace(job, walltime_s=job.duration_s) for job in jobs]
        placed = partial(_placed, topology, jobs)
        plans |= {name: placed(name, untold) for name in ("horizon", "mapa", "mapa-preserve-site",
                                                          "best-fit")}  # fmt: skip
        plans["horizon-told"] = placed("horizon", exact)
        figures = {name: _figures(topology, jobs, runs) for name, runs in plans.items()}
        best_s, most = figures["soonest"]["submit_to_end_s"], figures["straightest"]["share"]
        for name, row in figures.items():
            later = row["submit_to_end_s"] / best_s - 1
            row |= {
                "later": later,
                "at-best": float(later <= NEAR),
                "less-share": most - row["share"],
            }
            rows.setdefault(name, []).append(row)
    return Result("horizon-exhaustive", tuple(seeds), averaged(rows), {}, NOTES)


def _placed(
    topology: NodeTopology, jobs: Sequence[SimJob], policy: str, given: Sequence[SimJob]
) -> tuple[tuple[int, float, float], ...]:
    """The runs under a policy, which is shown the given jobs."""
    simulator = Simulator({"n1": topology}, registry.build(policy), speed=Told(jobs))
    runs = {
        one.job.job_id: (mask_of(one.placement.gpus["n1"]), one.start_s, one.end_s)
        for one in simulator.run(given).records
    }
    return tuple(runs[job.job_id] for job in jobs)


def _figures(
    topology: NodeTopology, jobs: Sequence[SimJob], runs: Sequence[tuple[int, float, float]]
) -> dict[str, float]:
    shares = [judge(topology, gpus_of(mask)).share for mask, _, _ in runs if mask.bit_count() > 1]
    pairs = list(zip(jobs, runs, strict=True))
    return {
        "submit_to_end_s": fmean(end_s - job.submit_s for job, (_, _, end_s) in pairs),
        "wait_s": fmean(start_s - job.submit_s for job, (_, start_s, _) in pairs),
        "share": fmean(shares) if shares else 1.0,
    }
