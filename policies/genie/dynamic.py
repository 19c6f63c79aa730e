"""`genie`: Algorithm 1 with three additions, each for a failure seen when it is run as printed.

1. As printed, a task that is late already goes first, since its waiting allowance is the least:
   one missed deadline makes everything behind it late. Here tasks that can still be in time go
   before tasks that cannot.
2. When not all can be in time, those that need the most GPU time go last, so that as many as
   possible are (Moore 1968's rule, on the cluster's GPU seconds).
3. A task takes the best shape that fits now instead of waiting for the best of all, and tasks
   that fit pass those that do not.

Kept from the paper: of the shapes that meet the deadline the one with the highest cost-effective
ratio (eqs. 10-12), the shortest waiting allowance first (eq. 13), urgent tasks before all.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.contract.scheduling import URGENT, FreeGpus, Planned, Queue
from policies.genie.algorithm import Indices, TaskTable
from policies.performance.runs import Floats

#: Groups in the order in which they may have GPUs.
_STARVING, _URGENT, _IN_TIME, _TOO_MUCH, _LATE = range(5)


@dataclass(frozen=True, slots=True)
class Genie:
    """GENIE's scheduler, which is used where no other one is named."""

    name: str = "genie"
    #: Predicted times are multiplied by this before they are held against a deadline, since
    #: predictions are off by some 10 %.
    margin: float = 1.1
    #: A task that is so many seconds over its deadline goes first, and no other task passes it.
    patience_s: float = 7 * 86400.0
    #: The same for urgent tasks, whose deadline is their arrival.
    urgent_patience_s: float = 3600.0

    def plan(self, queue: Queue) -> list[Planned]:
        """Choose shapes and the order, and start every task that fits."""
        if not queue.waiting:
            return []
        table = TaskTable.of(queue)
        meets = table.meets(queue.now_s, self.margin)
        chosen = table.best(meets)
        latency = table.latency_at(chosen)
        allowance = table.deadline_s - (latency + queue.now_s)
        work = _least_work(queue, table, meets)
        group = self._groups(queue, table, meets, work)
        rank = np.where(group == _IN_TIME, allowance, work)
        order = np.lexsort((table.job_id, rank, group))
        holding = int((group == _STARVING).sum())
        return _started(queue, table, meets, chosen, allowance, order, holding)

    def _groups(
        self, queue: Queue, table: TaskTable, meets: NDArray[np.bool_], work: Floats
    ) -> Indices:
        urgent = np.array([task.service == URGENT for task in queue.waiting])
        late_s = queue.now_s - table.deadline_s
        starving = late_s > np.where(urgent, self.urgent_patience_s, self.patience_s)
        possible = np.logical_or.reduce(meets, axis=1)
        group = np.where(possible, _IN_TIME, _LATE)
        group[urgent] = _URGENT
        group[starving] = _STARVING
        candidates = np.flatnonzero(group == _IN_TIME)
        group[_too_much(queue, table, work, candidates)] = _TOO_MUCH
        return np.asarray(group, dtype=np.int64)


def _least_work(queue: Queue, table: TaskTable, meets: NDArray[np.bool_]) -> Floats:
    """GPU seconds of each task's cheapest shape, of those in time where there are any."""
    work = table.latency_s * queue.platform.gpu_counts
    possible = np.logical_or.reduce(meets, axis=1)
    allowed = meets | np.logical_not(possible).reshape(-1, 1)
    result: Floats = np.where(allowed, work, np.inf).min(axis=1)
    return result


def _too_much(queue: Queue, table: TaskTable, work: Floats, candidates: Indices) -> list[int]:
    """The candidates to leave out so that the others' work fits before their deadlines.

    By deadline, adding up GPU seconds after what runs; where it is more than the cluster
    has until then, the largest so far is left out (Moore's rule).
    """
    gpus = queue.platform.nodes * queue.platform.gpus_per_node
    used = sum(
        max(0.0, started.end_s - queue.now_s) * started.shape.gpus for started in queue.running
    )
    kept: list[tuple[float, int]] = []
    left_out = []
    for at in candidates[np.argsort(table.deadline_s[candidates], kind="stable")]:
        heapq.heappush(kept, (-float(work[at]), int(at)))
        used += float(work[at])
        if used > gpus * (float(table.deadline_s[at]) - queue.now_s):
            largest, out = heapq.heappop(kept)
            used += largest
            left_out.append(out)
    return left_out


def _started(
    queue: Queue,
    table: TaskTable,
    meets: NDArray[np.bool_],
    chosen: Indices,
    allowance: Floats,
    order: Indices,
    holding: int,
) -> list[Planned]:
    """Start, in order, every task with a shape that fits now; of its shapes the highest ratio.

    A task that can still be in time starts only with a shape that is in time. No task passes the
    first `holding` ones. One pass is enough: GPUs only become fewer while tasks start.
    """
    possible = np.logical_or.reduce(meets, axis=1).reshape(-1, 1)
    allowed = np.where(possible, meets, np.isfinite(table.latency_s))[order]
    least = _least_nodes(queue, allowed)
    free = FreeGpus(queue.platform, dict(queue.free))
    starts: dict[int, tuple[int, tuple[str, ...]]] = {}
    first = 0
    while first < len(order) and free.gpus:
        fits = np.logical_or.reduce(least[first:] <= free.nodes_with()[1:], axis=1)
        ahead = int(fits.argmax())
        if not fits[ahead] or (ahead and first < holding):
            break
        first += ahead
        at = int(order[first])
        ratio = np.where(allowed[first] & free.fits(), table.ratio[at], -np.inf)
        shape = int(ratio.argmax())
        starts[at] = (shape, free.take(shape))
        first += 1
    planned = []
    for at in map(int, order):
        shape, nodes = starts.get(at, (int(chosen[at]), ()))
        late_s = float(allowance[at] + table.latency_s[at, chosen[at]] - table.latency_s[at, shape])
        planned.append(Planned(queue.waiting[at], queue.platform.shapes[shape], late_s, nodes))
    return planned


def _least_nodes(queue: Queue, allowed: NDArray[np.bool_]) -> Indices:
    """Per task and GPUs per node, from 1 on: the fewest nodes it may have, more than all if none.

    A shape fits when that many nodes have the GPUs, so these few numbers say all there is.
    """
    nodes, per_node = queue.platform.nodes, queue.platform.gpus_per_node
    by_count = allowed.reshape(-1, nodes, per_node)
    possible = np.logical_or.reduce(by_count, axis=1)
    return np.where(possible, by_count.argmax(axis=1) + 1, nodes + 1)
