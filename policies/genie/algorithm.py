"""`genie-paper`: Algorithm 1 as printed (Chen et al., TPDS, section 5.4).

For each waiting task the placement with the highest cost-effective ratio among those that meet
its deadline, else among all; then the shortest waiting allowance first (eq. 13). The head of
the queue starts when it fits; the others wait behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.contract.scheduling import Planned, Queue, Task, in_order
from policies.performance.runs import Floats

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TaskTable:
    """The waiting tasks as arrays: (tasks x shapes) and one deadline and id per task."""

    latency_s: Floats
    ratio: Floats
    deadline_s: Floats
    job_id: Indices

    @classmethod
    def of(cls, queue: Queue) -> TaskTable:
        """The table of a queue that is not empty."""
        return cls(
            np.stack([task.latency_s for task in queue.waiting]),
            np.stack([task.ratio for task in queue.waiting]),
            np.array([task.deadline_s for task in queue.waiting]),
            np.array([task.job_id for task in queue.waiting], dtype=np.int64),
        )

    def meets(self, now_s: float, margin: float = 1.0) -> NDArray[np.bool_]:
        """Eq. 12: which shapes would end in time, were they started now."""
        result: NDArray[np.bool_] = self.latency_s * margin + now_s <= self.deadline_s[:, None]
        return result

    def best(self, meets: NDArray[np.bool_]) -> Indices:
        """Lines 10-13: the highest ratio among those that meet, else among all."""
        possible = np.logical_or.reduce(meets, axis=1)
        allowed = meets | np.logical_not(possible).reshape(-1, 1)
        ratio = np.where(allowed, self.ratio, -np.inf)
        return np.asarray(ratio.argmax(axis=1), dtype=np.int64)

    def latency_at(self, chosen: Indices) -> Floats:
        """The latency of one shape per task."""
        result: Floats = np.take_along_axis(self.latency_s, chosen[:, None], axis=1)[:, 0]
        return result


def by_allowance(queue: Queue, *, late_last: bool = False) -> list[tuple[Task, int]]:
    """The waiting tasks with their shapes (by index), shortest waiting allowance first.

    `late_last`: tasks that no shape brings in time go behind all others.
    """
    if not queue.waiting:
        return []
    table = TaskTable.of(queue)
    meets = table.meets(queue.now_s)
    chosen = table.best(meets)
    allowance = table.deadline_s - (table.latency_at(chosen) + queue.now_s)
    is_late = ~np.logical_or.reduce(meets, axis=1) & late_last
    order = np.lexsort((table.job_id, allowance, is_late))
    return [(queue.waiting[at], int(chosen[at])) for at in order]


@dataclass(frozen=True, slots=True)
class GeniePaper:
    """Shortest waiting allowance first, as printed."""

    name: str = "genie-paper"

    def plan(self, queue: Queue) -> list[Planned]:
        """Choose shapes, order, start from the head on."""
        return in_order(queue, by_allowance(queue))
