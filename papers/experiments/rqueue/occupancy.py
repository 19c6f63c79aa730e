"""rqueue-occupancy: section IV.B, which job has which GPU when, on five nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from papers.experiments import Result
from papers.experiments.experiment import averaged
from papers.experiments.rqueue.tsubame import G_QUEUE, OURS, QUEUES, R_QUEUE, SHARED
from papers.experiments.rqueue.workload import DAY_S, jobs, nodes
from papers.simulators.loans import Ended
from papers.simulators.queued_loans import QueuedLoanJob, QueuedLoanSimulator
from simulation.core.steps import each

NODES, JOBS, PERIOD_S = 5, 50, 10 * DAY_S
LARGEST = 4
#: Columns of the picture.
WIDTH = 96
_SIGNS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
NOTES = (
    "The paper prints two pictures and no figures: with the R queue more jobs run at most times,"
    " and some run longer. Its 50 jobs are not public: these are of the synthetic year's busiest"
    " ten days, evenly taken from those of at most 4 nodes.",
    "The pictures show a queue with many jobs waiting; with --submits at-once all come at 0 s.",
    "more_jobs_percent, fewer_jobs_percent: of the time until the queue's last job ends, how long"
    " more, or fewer, jobs run than under the G queue; ahead_percent: how long more have started.",
)


def busy_period(seed: int) -> list[QueuedLoanJob]:
    """Fifty jobs of the ten days with the most submits, from 0 s on."""
    year = [job for job in jobs(seed) if len(job.job.request.gpus_per_node) <= LARGEST]
    periods: dict[int, list[QueuedLoanJob]] = {}
    for job in year:
        periods.setdefault(int(job.submit_s // PERIOD_S), []).append(job)
    busiest = max(periods, key=lambda number: len(periods[number]))
    period = periods[busiest]
    taken = [period[len(period) * number // JOBS] for number in range(JOBS)]
    return [replace(job, submit_s=job.submit_s - busiest * PERIOD_S) for job in taken]


def run(seeds: Sequence[int], submits: str = "as-drawn", picture: str = "no") -> Result:
    """The fifty jobs under every queue; `picture`: `text` adds who has which GPU when."""
    rows: dict[str, list[dict[str, float]]] = {}
    drawn: list[str] = []
    bars: dict[str, list[tuple[float, float, float, float]]] = {}
    for seed in each(seeds):
        log = busy_period(seed)
        if submits == "at-once":
            log = [replace(job, submit_s=0.0) for job in log]
        before: list[Ended] = []
        for name in each((G_QUEUE, SHARED, R_QUEUE, OURS)):
            simulator = QueuedLoanSimulator(nodes(NODES), QUEUES[name])
            ended = simulator.run(log)
            before = before or ended
            rows.setdefault(name, []).append(figures(log, ended, before, simulator.end_s))
            if seed == seeds[0] and name in (G_QUEUE, R_QUEUE):
                bars[f"{name}, seed {seed}"] = blocks(log, ended, simulator)
            if picture == "text":
                drawn.append(f"{name}, seed {seed}:\n" + drawing(log, ended, simulator))
    series = {"occupancy": bars}
    notes = (*NOTES, *drawn)
    return Result("rqueue-occupancy", tuple(seeds), averaged(rows), {}, notes, series=series)


def figures(
    log: Sequence[QueuedLoanJob], ended: Sequence[Ended], before: Sequence[Ended], end_s: float
) -> dict[str, float]:
    """One queue's figures, against the G queue's run of the same jobs."""
    more_s, fewer_s, ahead_s, all_s = compared(log, ended, before)
    gpu_s = sum(
        sum(job.job.request.gpus_per_node) * outcome.execution_s
        for job, outcome in zip(log, ended, strict=True)
    )
    return {
        "wait_mean_s": fmean(job.wait_s for job in ended),
        "execution_mean_s": fmean(job.execution_s for job in ended),
        "makespan_s": end_s,
        "busy_gpus_mean": gpu_s / end_s,
        "more_jobs_percent": 100 * more_s / all_s,
        "fewer_jobs_percent": 100 * fewer_s / all_s,
        "ahead_percent": 100 * ahead_s / all_s,
        "longer_percent": 100 * fmean(job.execution_s > job.alone_s + 1 for job in ended),
        "longest_added_s": max(job.execution_s - job.alone_s for job in ended),
        "remote_percent": 100 * fmean(job.remote_gpus > 0 for job in ended),
    }


def compared(
    log: Sequence[QueuedLoanJob], ended: Sequence[Ended], before: Sequence[Ended]
) -> tuple[float, float, float, float]:
    """Seconds with more and with fewer jobs running than before, with more started, and in all."""
    end_s = max(job.submit_s + outcome.life_s for job, outcome in zip(log, ended, strict=True))
    starts: list[tuple[float, int]] = []
    ends: list[tuple[float, int]] = []
    for runs, sign in ((ended, 1), (before, -1)):
        for job, outcome in zip(log, runs, strict=True):
            start_s = job.submit_s + outcome.wait_s
            starts.append((start_s, sign))
            ends.append((start_s + outcome.execution_s, -sign))
    more_s, fewer_s = _balance(starts + ends, end_s)
    ahead_s, _ = _balance(starts, end_s)
    return more_s, fewer_s, ahead_s, end_s - min(starts)[0]


def _balance(changes: Sequence[tuple[float, int]], end_s: float) -> tuple[float, float]:
    """Seconds before the end in which the sum of the changes so far is above, and below, 0."""
    above_s = below_s = 0.0
    balance = 0
    for (at_s, sign), (following_s, _) in pairwise([*sorted(changes), (end_s, 0)]):
        balance += sign
        passed_s = max(0.0, min(following_s, end_s) - at_s)
        above_s += passed_s * (balance > 0)
        below_s += passed_s * (balance < 0)
    return above_s, below_s


def blocks(
    log: Sequence[QueuedLoanJob], ended: Sequence[Ended], simulator: QueuedLoanSimulator
) -> list[tuple[float, float, float, float]]:
    """(GPU, start, end, job) of every GPU that a job held; GPUs counted through all nodes."""
    place = {name: at for at, name in enumerate(sorted(simulator.nodes))}
    bars = []
    for number, one in enumerate(ended):
        start_s = log[number].submit_s + one.wait_s
        for task in simulator.placements[number].tasks:
            for node, gpu in (*((task.node, gpu) for gpu in task.local), *task.remote):
                row = 3 * place[node] + gpu
                bars.append((float(row), start_s, start_s + one.execution_s, float(number)))
    return bars


def drawing(
    log: Sequence[QueuedLoanJob], ended: Sequence[Ended], simulator: QueuedLoanSimulator
) -> str:
    """A line per GPU, a letter per job, a dot where it is idle."""
    gpus = [(name, gpu) for name in sorted(simulator.nodes) for gpu in range(3)]
    cells = {pair: ["."] * WIDTH for pair in gpus}
    for number, outcome in enumerate(ended):
        start_s = log[number].submit_s + outcome.wait_s
        first = int(WIDTH * start_s / simulator.end_s)
        last = int(WIDTH * (start_s + outcome.execution_s) / simulator.end_s)
        for task in simulator.placements[number].tasks:
            for pair in (*((task.node, gpu) for gpu in task.local), *task.remote):
                for at in range(first, max(first + 1, min(last, WIDTH))):
                    cells[pair][at] = _SIGNS[number % len(_SIGNS)]
    return "\n".join(f"{name}:{gpu} {''.join(cells[name, gpu])}" for name, gpu in gpus)
