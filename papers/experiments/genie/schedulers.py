"""GENIE and the schedulers it is compared with (Chen et al., TPDS, section 7.1).

FIFO, capacity, min-min and weighted fair treat jobs as black boxes: they take the shape the
user asked for and stop at the first job that does not fit, as the paper describes them.
The two Tetris ones choose the shape by the performance model and pack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from policies.contract.scheduling import (
    FreeGpus,
    Planned,
    Platform,
    Queue,
    Scheduler,
    Task,
    in_order,
)
from policies.genie.algorithm import GeniePaper
from policies.genie.dynamic import Genie
from policies.performance import Shape

#: Smaller goes first.
Key = Callable[[Task], float]


@dataclass(frozen=True, slots=True)
class ByKey:
    """Black boxes in the order of a key: the shape the user asked for, strictly in order."""

    name: str
    key: Key

    def plan(self, queue: Queue) -> list[Planned]:
        """Start in order; the first that does not fit stops the queue."""
        ordered = sorted(queue.waiting, key=lambda task: (self.key(task), task.job_id))
        return in_order(queue, [(task, queue.platform.index(task.requested)) for task in ordered])


FIFO = ByKey("fifo", lambda task: task.arrival_s)
#: "The tasks with earlier ECTs have higher priorities."
MIN_MIN = ByKey("min-min", lambda task: task.deadline_s)
#: "The weighted average value of the task's arrival time and ECT"; the weights are not given.
WEIGHTED_FAIR = ByKey("weighted-fair", lambda task: (task.arrival_s + task.deadline_s) / 2)


@dataclass(frozen=True, slots=True)
class Capacity:
    """Each kind of model has an equal part of the GPUs, and its jobs get them first come, first.

    `profiles` are the kinds. A job that asks for more than its kind has gets the largest shape that
    fits. One that cannot run on so few, or whose kind is not listed, may have what it needs while
    no other job of its kind runs.
    """

    profiles: tuple[str, ...]
    name: str = "capacity"

    def shares(self, platform: Platform) -> dict[str, int]:
        """GPUs of each kind; what does not divide goes to the first."""
        total, kinds = platform.nodes * platform.gpus_per_node, len(self.profiles)
        return {
            name: total // kinds + (at < total % kinds) for at, name in enumerate(self.profiles)
        }

    def plan(self, queue: Queue) -> list[Planned]:
        """Start in order of arrival within each kind; kinds do not wait for each other."""
        shares = self.shares(queue.platform)
        used = Counter[str]()
        for started in queue.running:
            used[started.profile] += started.shape.gpus
        free = FreeGpus(queue.platform, dict(queue.free))
        stopped: set[str] = set()
        planned = []
        for task in sorted(queue.waiting, key=lambda task: (task.arrival_s, task.job_id)):
            share = shares.get(task.profile, 0)
            at = queue.platform.index(_within(task, share, queue.platform))
            gpus = int(queue.platform.gpu_counts[at])
            nodes: tuple[str, ...] = ()
            allowed = used[task.profile] + gpus <= share or not used[task.profile]
            if task.profile not in stopped and allowed and free.fits()[at]:
                nodes = free.take(at)
                used[task.profile] += gpus
            else:
                stopped.add(task.profile)
            allowance = task.deadline_s - queue.now_s - float(task.latency_s[at])
            planned.append(Planned(task, queue.platform.shapes[at], allowance, nodes))
        return planned


def _within(task: Task, gpus: int, platform: Platform) -> Shape:
    """The requested shape, or the largest possible one within so many GPUs, or the least."""
    if task.requested.gpus <= gpus:
        return task.requested
    possible = [
        shape for at, shape in enumerate(platform.shapes) if np.isfinite(task.latency_s[at])
    ]
    smaller = [shape for shape in possible if shape.gpus <= gpus]
    if smaller:
        return max(smaller, key=lambda shape: (shape.gpus, -shape.nodes))
    return min(possible, key=lambda shape: (shape.gpus, shape.nodes))


@dataclass(frozen=True, slots=True)
class Tetris:
    """Tetris (Grandl et al., SIGCOMM'14) over GPUs: alignment less weighted remaining work.

    The shape is that of the highest `score` (processing rate, or cost-effective ratio). A
    task's alignment is its share of the cluster's GPUs times the share that is free; its work
    GPU seconds; the weight is the ratio of their means, as Tetris has it. Whoever fits may pass.
    """

    name: str
    by_ratio: bool

    def plan(self, queue: Queue) -> list[Planned]:
        """Start the best-packing tasks that fit."""
        if not queue.waiting:
            return []
        platform = queue.platform
        latency = np.stack([task.latency_s for task in queue.waiting])
        score = np.stack([task.ratio for task in queue.waiting]) if self.by_ratio else -latency
        chosen = score.argmax(axis=1)
        gpus = platform.gpu_counts[chosen]
        work = gpus * np.take_along_axis(latency, chosen[:, None], axis=1)[:, 0]
        total = platform.nodes * platform.gpus_per_node
        aligned = gpus / total * (sum(queue.free.values()) / total)
        weight = aligned.mean() / work.mean()
        order = np.lexsort(([task.job_id for task in queue.waiting], -(aligned - weight * work)))
        return in_order(
            queue, [(queue.waiting[at], int(chosen[at])) for at in order], may_pass=True
        )


TETRIS_PERF = Tetris("tetris-perf", by_ratio=False)
TETRIS_CER = Tetris("tetris-cer", by_ratio=True)


def schedulers(profiles: tuple[str, ...]) -> tuple[Scheduler, ...]:
    """All schedulers in the order of the paper's comparison, ours last.

    `profiles` are the kinds of model that `Capacity` keeps apart.
    """
    return (
        FIFO,
        Capacity(tuple(sorted(profiles))),
        MIN_MIN,
        WEIGHTED_FAIR,
        TETRIS_PERF,
        TETRIS_CER,
        GeniePaper(),
        Genie(),
    )
