"""drmaestro-testbed, drmaestro-scale and drmaestro-network: sections 5.6.2, 5.6.4 and 5.6.5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from papers.experiments import Result
from papers.experiments.drmaestro.workload import (
    GOAL,
    GPUS,
    INTERVAL_S,
    MEANS_S,
    jobs,
    machines,
)
from papers.experiments.experiment import averaged
from papers.experiments.rqueue.middleware import PAPERS, found
from papers.simulators.loans import Ended
from papers.simulators.planned_loans import PlannedJob, PlannedLoanSimulator
from policies.remote.drmaestro import Costs, DRMaestro, utility
from simulation.core.steps import each

WITHOUT, WITH = "without remote GPUs", "with remote GPUs"
AWARE = "with remote GPUs, network-aware"
WITHOUT_AWARE = "without remote GPUs, network-aware"
BOUND = "bound: every GPU busy from the first submit on"


@dataclass(frozen=True, slots=True)
class Choices:
    """What the thesis does not print."""

    in_reach: int = 6
    goal: float = GOAL
    round_s: float = INTERVAL_S
    #: P of eq. 12 for a remote GPU; a local one has 1, being left unscheduled 20.
    remote: float = 2.0
    #: What lent GPUs cost: the thesis's, or what a site measured.
    middleware: str = PAPERS


@dataclass(frozen=True, slots=True)
class Scenario:
    """How many jobs and machines, the lines to run, and what the thesis prints of them."""

    name: str
    jobs: int
    machines: int
    paper: Mapping[str, Mapping[str, float]]
    is_aware: bool = False


def _printed(*figures: tuple[float, ...]) -> Mapping[str, Mapping[str, float]]:
    """What the thesis prints of each line: its makespan in seconds, and its speedup if it has one.

    The lines come in the order WITHOUT, WITH, WITHOUT_AWARE, AWARE.
    """
    lines = (WITHOUT, WITH, WITHOUT_AWARE, AWARE)
    return {
        line: dict(zip(("makespan_s", "speedup"), row, strict=False))
        for line, row in zip(lines, figures, strict=False)
    }


TESTBED = Scenario("drmaestro-testbed", 512, 4, _printed((2486.0,), (2191.0, 1.13)))
SCALE = Scenario(
    "drmaestro-scale",
    4096,
    128,
    _printed((1087.73,), (972.20, 1.12), (959.21,), (862.15, 1.11)),
    is_aware=True,
)
NETWORK = Scenario(
    "drmaestro-network",
    64,
    4,
    _printed((413.08,), (261.77, 1.58), (418.83,), (300.07, 1.40)),
    is_aware=True,
)
NOTES = (
    "The jobs' mean time is set by the line without remote GPUs; speedups are over that line.",
    "The thesis prints how many GPUs are in reach without remote ones for its testbed alone (6 of"
    " 16); --in-reach has other counts.",
    "Jobs are single tasks of one GPU, of seven of Rodinia's applications in equal shares; CPUs,"
    " memory, spread of times, seconds between rounds and the goal by which the network holds a job"
    " back (here a slowdown over 1.01) are not printed.",
    "With remote GPUs a job takes longer by the network's share of its time as section 3.3.3 prints"
    " it, between its figures for an idle and a full network by the others' traffic.",
    "Local GPUs do not use the network here, so that network-awareness changes nothing without"
    " remote ones.",
    "Costs are eqs. 11-13. Their preferences are not printed: 1 for a local GPU, 2 for a remote one"
    " (--preference of drmaestro-network), 20 for none. utility_mean is eq. 11 by the times that"
    " jobs took.",
    "plan_..._ms: processor time of a plan (Figures 24 and 27, which print no figures). That of the"
    " thesis includes binding the jobs.",
)


def told(middleware: str) -> tuple[str, ...]:
    """A note on what was measured; none for the thesis's."""
    if middleware == PAPERS:
        return ()
    said = found(middleware)
    return (
        f"Lent GPUs cost what was measured of {said.preset} ({said.where or middleware}): the"
        " thesis's shares on an idle network, over its 10 Gbit/s, give each application's bytes,"
        f" which take {said.remote.gb_s:.2f} GB/s and {said.local.gb_s:.2f} on own GPUs; a full"
        " network lengthens them as there.",
    )


def run_testbed(seeds: Sequence[int], in_reach: str = "6", middleware: str = PAPERS) -> Result:
    """512 jobs on 4 machines."""
    return _run(TESTBED, seeds, Choices(int(in_reach), middleware=middleware))


def run_scale(seeds: Sequence[int], in_reach: str = "6", middleware: str = PAPERS) -> Result:
    """4,096 jobs on 128 machines."""
    return _run(SCALE, seeds, Choices(int(in_reach), middleware=middleware))


def run_network(
    seeds: Sequence[int],
    in_reach: str = "6",
    goal: str = "1.01",
    round_s: str = "1",
    preference: str = "2",
    middleware: str = PAPERS,
) -> Result:
    """64 jobs on 4 machines, with and without network-aware costs."""
    choices = Choices(int(in_reach), float(goal), float(round_s), float(preference), middleware)
    return _run(NETWORK, seeds, choices)


def _run(scenario: Scenario, seeds: Sequence[int], choices: Choices) -> Result:
    lines = (WITHOUT, WITH, *((AWARE,) if scenario.is_aware else ()))
    rows: dict[str, list[Mapping[str, float]]] = {name: [] for name in (*lines, BOUND)}
    for seed in each(seeds):
        by_line = {name: simulated(scenario, seed, choices, name) for name in each(lines)}
        before_s = by_line[WITHOUT]["makespan_s"]
        by_line[BOUND] = {
            "makespan_s": bound_s(scenario.machines, asked(scenario, seed, choices, WITH))
        }
        for name, figures in by_line.items():
            speedup = {} if name == WITHOUT else {"speedup": before_s / figures["makespan_s"]}
            rows[name].append(figures | speedup)
    notes = (*NOTES, *told(choices.middleware))
    return Result(scenario.name, tuple(seeds), averaged(rows), scenario.paper, notes)


def asked(scenario: Scenario, seed: int, choices: Choices, line: str) -> list[PlannedJob]:
    """The jobs of one line."""
    mean_s = MEANS_S[scenario.name][choices.in_reach]
    goal = choices.goal if line == AWARE else float("inf")
    remote = line in (WITH, AWARE)
    return jobs(seed, scenario.jobs, mean_s, remote, goal, middleware=choices.middleware)


def simulated(scenario: Scenario, seed: int, choices: Choices, line: str) -> dict[str, float]:
    """One line's makespan, and how much longer than alone on local GPUs its jobs took."""
    planner = DRMaestro(Costs(remote=choices.remote, network_aware=line == AWARE))
    return replayed(asked(scenario, seed, choices, line), scenario.machines, choices, planner)


def replayed(
    log: Sequence[PlannedJob], machine_count: int, choices: Choices, planner: DRMaestro
) -> dict[str, float]:
    """What becomes of the jobs under one planner."""
    capacities, warm = machines(machine_count, choices.in_reach)
    simulator = PlannedLoanSimulator(capacities, planner, warm, choices.round_s)
    return measured(simulator, simulator.run(log), choices.goal)


def measured(
    simulator: PlannedLoanSimulator, ended: Sequence[Ended], goal: float
) -> dict[str, float]:
    """The figures of one run; the utility is eq. 11's, by the times that the jobs took."""
    slowdowns = [job.execution_s / job.alone_s for job in ended]
    return {
        "makespan_s": simulator.end_s,
        "wait_mean_s": fmean(job.wait_s for job in ended),
        "slowdown_mean": fmean(slowdowns),
        "utility_mean": fmean(utility(slowdown, goal) for slowdown in slowdowns),
        "remote_percent": 100 * fmean(job.remote_gpus > 0 for job in ended),
        **overhead(simulator.plan_s),
    }


def overhead(plan_s: Sequence[float]) -> dict[str, float]:
    """Figures 24 and 27: milliseconds of processor time that a plan took."""
    quantiles = np.quantile(plan_s, (0.5, 0.95))
    return {
        "plan_mean_ms": 1000 * fmean(plan_s),
        "plan_median_ms": 1000 * float(quantiles[0]),
        "plan_p95_ms": 1000 * float(quantiles[1]),
        "plan_longest_ms": 1000 * max(plan_s),
    }


def bound_s(machine_count: int, log: Sequence[PlannedJob]) -> float:
    """No plan ends sooner than this, the later of two.

    All work spread over all GPUs without a gap or slowdown; each job started when it is submitted.
    """
    work_s = sum(job.alone_s * sum(job.job.request.gpus_per_node) for job in log)
    spread_s = log[0].submit_s + work_s / (GPUS * machine_count)
    return max(spread_s, *(job.submit_s + job.alone_s for job in log))
