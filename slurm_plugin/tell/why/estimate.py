"""When a job starts if everybody runs to the end of their time limit, in the queue's order.

Conservative backfill: each job ahead gets the earliest place that delays nobody before it
(Mu'alem and Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates in
Scheduling the IBM SP2 with Backfilling", IEEE TPDS 2001).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from gres_topology.features import Unsupported
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import Hold, Nodes, with_hold, without_holds
from slurm_plugin.queue.demand import Unplaceable
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.tell.why.site import SiteNodes, need_of_job

#: How many moments are tried for all jobs together; a longer queue is not planned.
MAX_TRIES = 300
#: A job without a time limit is taken to run so long.
NO_LIMIT_S = 365 * 86400.0


@dataclass(slots=True)
class Timeline:
    """Who holds what from when on. Times are epochs."""

    site: SiteNodes
    now: float
    _planned: list[tuple[float, Hold]] = field(default_factory=list)
    _tries: int = 0
    # The nodes as they are when all that holds them now has ended.
    _empty: Nodes | None = None

    def place(self, need: Need, limit_s: float) -> tuple[float, tuple[str, ...]] | None:
        """Plan the job as early as it fits: its start and nodes.

        None where no moment is found: nobody gives back what it needs, or the queue is too long.
        """
        if self._empty is None:
            self._empty = without_holds(self.site.nodes, self.site.holds)
        if self.site.hold(need, self._empty, math.inf) is None:
            return None
        for at, nodes in self._moments(limit_s):
            if self.is_full:
                return None
            self._tries += 1
            hold = self.site.hold(need, nodes, at + limit_s)
            if hold is not None:
                self._planned.append((at, hold))
                return at, tuple(hold.gpus)
        return None

    @property
    def is_full(self) -> bool:
        """Was so much tried that the jobs placed last may be missing?"""
        return self._tries >= MAX_TRIES

    def free_now(self, limit_s: float) -> Nodes:
        """What a job of this time limit could have now without delaying any that was placed."""
        return self._free_during(self.now, self.now + limit_s)

    def _moments(self, limit_s: float) -> Iterator[tuple[float, Nodes]]:
        """Moments at which something comes free, each with what is free from then on."""
        planned = [hold for _, hold in self._planned]
        ends = {hold.end for hold in (*self.site.holds, *planned) if hold.end < math.inf}
        for at in sorted({self.now, *(end for end in ends if end > self.now)}):
            yield at, self._free_during(at, at + limit_s)

    def _free_during(self, start: float, end: float) -> Nodes:
        ended = (hold for hold in self.site.holds if hold.end <= start)
        nodes = without_holds(self.site.nodes, ended)
        for begin, hold in self._planned:
            if begin < end and hold.end > start:
                nodes = with_hold(nodes, hold)
        return nodes


def limit_of(job: QueuedJob) -> float:
    """How long the job is taken to run, in seconds."""
    return job.time_limit_s or NO_LIMIT_S


def timeline_of(ahead: Iterable[QueuedJob], site: SiteNodes, now: float) -> Timeline:
    """All that runs, and these waiting jobs in their order; the last are missing if it is full.

    A job whose GPUs per node are not known before its start is left out.
    """
    timeline = Timeline(site, now)
    for job in ahead:
        with suppress(Unplaceable, Unsupported):
            timeline.place(need_of_job(job, site), limit_of(job))
        if timeline.is_full:
            break
    return timeline
