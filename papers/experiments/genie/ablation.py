"""What each addition to Algorithm 1 does by itself, and tetris-cer with one of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from papers.experiments.genie.schedulers import TETRIS_CER
from policies.contract.scheduling import FreeGpus, Planned, Queue, in_order
from policies.genie.algorithm import by_allowance


@dataclass(frozen=True, slots=True)
class PassingHead:
    """Algorithm 1 whose tasks pass a head of the queue that does not fit.

    `late_last`: tasks that no shape brings in time go behind all others.
    """

    name: str = "genie-paper, others pass its head"
    late_last: bool = False

    def plan(self, queue: Queue) -> list[Planned]:
        """Choose shapes, order, start all that fit."""
        return in_order(queue, by_allowance(queue, late_last=self.late_last), may_pass=True)


@dataclass(frozen=True, slots=True)
class FittingTetris:
    """tetris-cer's order; a task takes the shape with the highest ratio of those that fit now."""

    name: str = "tetris-cer, the shape that fits now"

    def plan(self, queue: Queue) -> list[Planned]:
        """Start the best-packing tasks."""
        free = FreeGpus(queue.platform, dict(queue.free))
        planned = []
        for one in TETRIS_CER.plan(queue):
            task = one.task
            fits = np.where(free.fits() & np.isfinite(task.latency_s), task.ratio, -np.inf)
            at = int(fits.argmax())
            if free.gpus and np.isfinite(fits[at]):
                allowance = task.deadline_s - queue.now_s - float(task.latency_s[at])
                nodes = free.take(at)
                planned.append(Planned(task, queue.platform.shapes[at], allowance, nodes))
            else:
                planned.append(Planned(task, one.shape, one.allowance_s, ()))
        return planned


ABLATIONS = (
    PassingHead(),
    PassingHead("genie-paper, others pass its head, late tasks last", late_last=True),
    FittingTetris(),
)
