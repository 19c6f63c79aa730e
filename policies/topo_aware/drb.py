"""Dual recursive bipartitioning: a job's tasks onto a node's free GPUs (SC17, algorithms 2-3).

The free GPUs are cut in two by Fiduccia-Mattheyses. The tasks, which are all alike, go one by one
to the half that gives the higher utility, ties to the first; a full half takes no more. To judge
a half, the task and as many of those left as fit are put there and the rest on the other half: a
task alone has no communication yet, and would be put where the job has no room.
"""

from __future__ import annotations

from policies.contract.bits import gpus_of, mask_of
from policies.topo_aware.utility import SetScorer, UtilityTerms


class Bipartition:
    """One job on one node state; parts that repeat are solved once."""

    def __init__(self, scale: SetScorer) -> None:
        self._scale = scale
        self._solved: dict[tuple[int, int], int] = {}

    def solve(self) -> tuple[int, UtilityTerms]:
        """The GPUs of the job, as a mask, and what they are worth."""
        mask = self._place(self._scale.free, self._scale.asked.gpus)
        return mask, self._scale.terms(mask)

    def _place(self, free: int, tasks: int) -> int:
        """The GPUs of `tasks` tasks within `free`, which has room for them."""
        if tasks == 0 or free.bit_count() == tasks:
            return free if tasks else 0
        key = (free, tasks)
        gpus = self._solved.get(key)
        if gpus is None:
            if self._scale.machine.is_uniform(free):
                gpus = mask_of(gpus_of(free)[:tasks])
            else:
                first, second = self._scale.machine.cut(free)
                here = self._divide(first, second, tasks)
                gpus = self._place(first, here) | self._place(second, tasks - here)
            self._solved[key] = gpus
        return gpus

    def _divide(self, first: int, second: int, tasks: int) -> int:
        """How many of the tasks go to the first half."""
        sizes = (first.bit_count(), second.bit_count())
        here = there = 0
        while here + there < tasks:
            left = tasks - here - there
            if here == sizes[0]:
                there += 1
            elif there == sizes[1]:
                here += 1
            else:
                most_here = min(sizes[0], here + left)
                least_here = tasks - min(sizes[1], there + left)
                if self._worth(first, second, tasks, most_here) >= self._worth(
                    first, second, tasks, least_here
                ):
                    here += 1
                else:
                    there += 1
        return here

    def _worth(self, first: int, second: int, tasks: int, here: int) -> float:
        mask = self._place(first, here) | self._place(second, tasks - here)
        return self._scale.terms(mask).utility
