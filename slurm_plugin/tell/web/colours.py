"""The colours of running jobs, and of their users: few, and different where they meet.

All drawings go by them, so that a job looks the same wherever it is drawn.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TypeVar

from gres_topology.pictures import theme
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.tell.web.view import natural

#: How many there are.
COLOURS = len(theme.JOBS)

Holder = TypeVar("Holder", bound=Hashable)


class Colours:
    """The number of each one's colour, from 0 on, kept for as long as it runs."""

    def __init__(self) -> None:
        self._of_job: dict[int, int] = {}
        self._of_user: dict[str, int] = {}
        #: Each running job's own, and its user's.
        self.of_job: dict[int, tuple[int, int]] = {}

    def renew(self, jobs: Sequence[QueuedJob]) -> None:
        """Give new jobs and users theirs, and forget who is gone."""
        on_job = {job.job_id: set(job.gpus) for job in jobs if job.gpus}
        on_user: defaultdict[str, set[str]] = defaultdict(set)
        for job in jobs:
            on_user[job.user].update(job.gpus)
        beside = _beside({name for names in on_job.values() for name in names})
        self._of_job = _coloured(self._of_job, on_job, beside)
        self._of_user = _coloured(self._of_user, {u: n for u, n in on_user.items() if n}, beside)
        self.of_job = {
            job.job_id: (self._of_job[job.job_id], self._of_user[job.user])
            for job in jobs
            if job.gpus
        }


def _beside(names: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Of each node the one drawn before it and the one behind it."""
    row = sorted(names, key=natural)
    return {name: (*row[max(0, at - 1) : at], *row[at + 1 : at + 2]) for at, name in enumerate(row)}


def _coloured(
    before: Mapping[Holder, int],
    nodes: Mapping[Holder, Collection[str]],
    beside: Mapping[str, Collection[str]],
) -> dict[Holder, int]:
    """A colour that nobody has on the same nodes, and on those beside them, as far as they go."""
    found = {one: before[one] for one in nodes if one in before}
    taken: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for one, colour in found.items():
        for name in nodes[one]:
            taken[name][colour] += 1
    for one, names in nodes.items():
        if one in found:
            continue
        here, near = Counter[int](), Counter[int]()
        for name in names:
            here.update(taken[name])
            for other in beside[name]:
                near.update(taken[other])
        # Of colours alike the one that is next in turn.
        turn = [(len(found) + step) % COLOURS for step in range(COLOURS)]
        found[one] = min(turn, key=lambda colour: (here[colour], near[colour]))
        for name in names:
            taken[name][found[one]] += 1
    return found
