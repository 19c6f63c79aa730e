"""Running GENIE's workloads under every scheduler, and what is measured (section 7.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import fmean, stdev

import numpy as np

from papers.experiments.genie.ablation import ABLATIONS
from papers.experiments.genie.schedulers import schedulers
from papers.experiments.genie.workload import Models, Spec, TrueTimes, Workload, make, models
from papers.experiments.pollux import GPUS_PER_NODE, PROFILES
from papers.simulators.shaping import ShapingSimulator
from policies.contract.scheduling import PRIOR, Platform, Scheduler, Task
from policies.genie.tasks import TaskMaker
from simulation.core.steps import each

#: The two that are GENIE; the others are what it is compared with.
OURS, PRINTED = "genie", "genie-paper"
#: The row of what no scheduler could exceed.
BOUND = "bound"


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of an experiment: a label, the workload, the nodes."""

    label: str
    spec: Spec
    nodes: int = 4


@dataclass(slots=True)
class FigureTable:
    """Figures of every scheduler at every setting: `values[scheduler][metric, label]`."""

    values: dict[str, dict[tuple[str, str], float]] = field(default_factory=dict)
    #: Figure 13d by label and scheduler: (hours, per cent completed), mean of seeds.
    completed: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)

    def flat(self) -> dict[str, dict[str, float | None]]:
        """{scheduler: {metric.label: value}}, to six digits."""
        return {
            name: {
                f"{metric}.{label}": float(f"{value:.6g}") for (metric, label), value in row.items()
            }
            for name, row in self.values.items()
        }

    def gains(self, label: str, who: str = OURS) -> tuple[float | None, float]:
        """GENIE (or the bound) over the best of the six others, per cent: QoS gained, makespan cut.

        No gain is defined over others that have no task in time.
        """
        variants = [scheduler.name for scheduler in ABLATIONS]
        others = [n for n in self.values if n not in (OURS, PRINTED, BOUND, *variants)]
        qos = max(self.values[name]["qos_pct", label] for name in others)
        makespan = min(self.values[name]["makespan_s", label] for name in others)
        ours = self.values[who]
        gained = 100 * (ours["qos_pct", label] / qos - 1) if qos else None
        return gained, 100 * (1 - ours["makespan_s", label] / makespan)


@lru_cache(maxsize=4)
def _models(kind: str, light: bool) -> Models:
    return models(kind, light=light)


def compared(
    settings: Sequence[Setting], seeds: Sequence[int], shapes: str, kind: str
) -> FigureTable:
    """Every scheduler at every setting: means over the seeds and the standard deviations.

    `shapes` is what black boxes ask for, `kind` the model that schedulers predict with.
    """
    table = FigureTable()
    for setting in each(settings):
        platform = Platform(setting.nodes, GPUS_PER_NODE)
        maker = TaskMaker(platform, _models(kind, True))
        for scheduler in each((*schedulers(PROFILES), *ABLATIONS)):
            specs = [(scheduler, maker, setting.spec, seed, shapes) for seed in seeds]
            replays = [_replayed(*spec) for spec in each(specs)]
            ends = [sorted(one.end_s for one in replay.done) for _, replay in replays]
            table.completed.setdefault(setting.label, {})[scheduler.name] = completion(ends)
            runs = [metrics(*pair, maker) for pair in replays]
            row = table.values.setdefault(scheduler.name, {})
            for metric in runs[0]:
                values = [run[metric] for run in runs]
                row[metric, setting.label] = fmean(values)
                if metric in ("qos_pct", "makespan_s"):
                    row[metric, f"{setting.label}_sd"] = stdev(values) if len(values) > 1 else 0.0
        bounds = [_bounds(maker, setting.spec, seed, shapes) for seed in seeds]
        row = table.values.setdefault(BOUND, {})
        row["qos_pct", setting.label] = fmean(qos for qos, _ in bounds)
        row["makespan_s", setting.label] = fmean(makespan_s for _, makespan_s in bounds)
    return table


def _bounds(maker: TaskMaker, spec: Spec, seed: int, shapes: str) -> tuple[float, float]:
    """On QoS guarantee and makespan."""
    workload = make(spec, seed, maker, shapes)
    truth = TrueTimes(maker.platform, workload.works, _models("calibrated", False))
    tasks, platform = workload.tasks, maker.platform
    return most_in_time(tasks, truth, platform), least_makespan_s(tasks, truth, platform)


def most_in_time(tasks: Sequence[Task], truth: TrueTimes, platform: Platform) -> float:
    """A bound on the QoS guarantee, per cent, which no schedule need reach.

    Each task counts with the fewest GPU seconds of all shapes that would be in time if started at
    arrival; as many of the smallest tasks are taken as the GPUs hold from the first arrival to
    the last deadline.
    """
    first = min(task.arrival_s for task in tasks)
    room = platform.nodes * platform.gpus_per_node
    left = room * (max(task.deadline_s for task in tasks) - first)
    needs = sorted(_least_gpu_s(task, truth, platform) for task in tasks)
    count = 0
    for need in needs:
        left -= need
        if left < 0:
            break
        count += 1
    return 100 * count / len(tasks)


def least_makespan_s(tasks: Sequence[Task], truth: TrueTimes, platform: Platform) -> float:
    """A bound on the makespan, by two arguments.

    No task ends before its arrival plus its time on the fastest shape; and the tasks that arrive
    from any moment on, each by its cheapest shape, take all GPUs as long as their work lasts.
    """
    gpus = platform.nodes * platform.gpus_per_node
    work_s = bound_s = 0.0
    for task in sorted(tasks, key=lambda task: task.arrival_s, reverse=True):
        took = truth.all(task)
        work_s += float((took * platform.gpu_counts).min()) / gpus
        bound_s = max(bound_s, task.arrival_s + float(took.min()), task.arrival_s + work_s)
    return bound_s


def _least_gpu_s(task: Task, truth: TrueTimes, platform: Platform) -> float:
    took = truth.all(task)
    in_time = task.arrival_s + took <= task.deadline_s
    return float(np.where(in_time, took * platform.gpu_counts, np.inf).min())


def _replayed(
    scheduler: Scheduler, maker: TaskMaker, spec: Spec, seed: int, shapes: str
) -> tuple[Workload, ShapingSimulator]:
    workload = make(spec, seed, maker, shapes)
    truth = TrueTimes(maker.platform, workload.works, _models("calibrated", False))
    replay = ShapingSimulator(maker.platform, scheduler, truth)
    replay.run(workload.tasks)
    return workload, replay


def completion(ends: Sequence[Sequence[float]]) -> list[list[float]]:
    """(hours, per cent of the tasks that have ended by then); hours are means over the runs."""
    shares = np.linspace(0, 1, 51)
    hours = np.mean([np.quantile(run, shares) for run in ends], axis=0) / 3600
    return [
        [round(float(h), 3), round(100 * float(s), 1)] for h, s in zip(hours, shares, strict=True)
    ]


def metrics(workload: Workload, replay: ShapingSimulator, maker: TaskMaker) -> dict[str, float]:
    """What is measured of one run.

    `qos_pct` is eq. 14; `latency_norm` eqs. 15-16, the time from arrival to end over the latency
    on the smallest shape; `error_p95_pct` the error of predicted run times (7.2.3);
    `overhead_pct` planning time over the makespan (7.2.4); `half_done_s` and `most_done_s` are when
    a half and nine tenths of the tasks have ended (Figure 13d).
    """
    done = replay.done
    makespan_s = max(one.end_s for one in done)
    single = [maker.expected_s(workload.works[one.task.job_id], PRIOR) for one in done]
    took = [one.end_s - one.task.arrival_s for one in done]
    predicted = np.array([one.task.latency_s[maker.platform.index(one.shape)] for one in done])
    true = np.array([one.end_s - one.start_s for one in done])
    return {
        "qos_pct": 100 * fmean(one.is_in_time for one in done),
        "makespan_s": makespan_s,
        "latency_norm": fmean(whole / one for whole, one in zip(took, single, strict=True)),
        "error_p95_pct": float(np.quantile(100 * np.abs(predicted / true - 1), 0.95)),
        "overhead_pct": 100 * sum(replay.plan_s) / makespan_s,
        "half_done_s": float(np.quantile([one.end_s for one in done], 0.5)),
        "most_done_s": float(np.quantile([one.end_s for one in done], 0.9)),
    }
