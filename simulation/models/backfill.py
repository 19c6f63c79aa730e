"""One pass of Slurm's backfill: when each waiting job will start, by the limits of all others.

As plugins/sched/backfill does it: every job that cannot start gets nodes kept from its expected
start to its end, whole nodes, in steps of bf_resolution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from simulation.core.jobs import SimJob
from simulation.core.occupancy import FreeCounts
from simulation.core.record import Running
from simulation.core.slurm_site import NodeRoom, Scheduling

#: The first of the windows in which cons_tres' will-run test lets running jobs end together.
WINDOW_S = 30.0
#: How soon a job ends that is over its limit.
MOMENT_S = 1.0


class KeptStart(NamedTuple):
    """Nodes that are kept for a job to come."""

    start_s: float
    end_s: float
    nodes: frozenset[str]


def fits(
    job: SimJob, gpus: Mapping[str, int], rooms: Mapping[str, NodeRoom], among: Iterable[str]
) -> bool:
    """Whether these nodes have the free GPUs, CPUs and memory for the job."""
    if job.cpus or job.memory_mb:
        among = [name for name in among if rooms[name].holds(job)]
    if len(job.gpus_per_node) == 1:
        least = job.gpus_per_node[0]
        return any(gpus[name] >= least for name in among)
    return FreeCounts(gpus[name] for name in among).fits(job.gpus_per_node)


class _State(NamedTuple):
    """What is free from some time on, if nobody starts."""

    at_s: float
    gpus: Mapping[str, int]
    rooms: Mapping[str, NodeRoom]


@dataclass(slots=True)
class Plan:
    """What one pass has planned so far; `gpus` and `rooms` are free now."""

    now_s: float
    how: Scheduling
    gpus: Mapping[str, int]
    rooms: Mapping[str, NodeRoom]
    running: Iterable[Running]
    kept: list[KeptStart] = field(default_factory=list)
    _known: dict[frozenset[str], list[_State]] = field(default_factory=dict)

    def kept_from(self, start_s: float, end_s: float) -> frozenset[str]:
        """Nodes that are kept for others at some time in between."""
        both = [one.nodes for one in self.kept if one.start_s <= end_s and start_s < one.end_s]
        return frozenset().union(*both)

    def earliest_s(self, job: SimJob, among: frozenset[str], lasts_s: float) -> float | None:
        """When the job can start; keeps nodes for it where that is not now.

        None: not within bf_window.
        """
        states = self._states(among)
        times = {self.now_s, *(one.end_s for one in self.kept), *(one.at_s for one in states)}
        state = 0
        for at_s in sorted(times):
            if at_s > self.now_s + self.how.bf_window_s:
                return None
            while state + 1 < len(states) and states[state + 1].at_s <= at_s:
                state += 1
            _, gpus, rooms = states[state]
            if not fits(job, gpus, rooms, among):
                continue
            open_nodes = among - self.kept_from(at_s, at_s + lasts_s)
            if fits(job, gpus, rooms, open_nodes):
                if at_s > self.now_s:
                    usable = [name for name in open_nodes if rooms[name].holds(job)]
                    self._keep(job, at_s, lasts_s, usable, gpus)
                return at_s
        return None

    def _states(self, among: frozenset[str]) -> list[_State]:
        """What is free now and after each group of ends, the same for all jobs of a partition."""
        if among not in self._known:
            states = [_State(self.now_s, self.gpus, self.rooms)]
            for at_s, runs in self._waves(among):
                gpus, rooms = dict(states[-1].gpus), dict(states[-1].rooms)
                for run in runs:
                    for name, mask in run.masks.items():
                        gpus[name] += mask.bit_count()
                        rooms[name] = rooms[name].less(run.job, -1)
                states.append(_State(at_s, gpus, rooms))
            self._known[among] = states
        return self._known[among]

    def _waves(self, among: frozenset[str]) -> list[tuple[float, list[Running]]]:
        """Running jobs by when they end, in the groups in which cons_tres tries without them.

        The first one is of WINDOW_S, each further one twice as long; a group counts from its last
        end. Who should have ended by now ends in a moment.
        """
        least_s = self.now_s + MOMENT_S
        ends = [
            (max(least_s, run.planned_end_s()), run)
            for run in self.running
            if not among.isdisjoint(run.masks)
        ]
        ends.sort(key=lambda pair: pair[0])
        waves: list[tuple[float, list[Running]]] = []
        window_s = WINDOW_S
        edge_s = WINDOW_S * (math.floor(ends[0][0] / WINDOW_S) + 1) if ends else 0.0
        for end_s, run in ends:
            if not waves or end_s > edge_s + window_s:
                while end_s > edge_s + window_s:
                    window_s *= 2
                waves.append((end_s, [run]))
            else:
                waves[-1] = (end_s, [*waves[-1][1], run])
        return waves

    def _keep(
        self, job: SimJob, at_s: float, lasts_s: float, usable: list[str], gpus: Mapping[str, int]
    ) -> None:
        """The fullest nodes that will do: most of the room stays for others."""
        chosen: set[str] = set()
        for count in sorted(job.gpus_per_node, reverse=True):
            rest = (name for name in usable if gpus[name] >= count and name not in chosen)
            chosen.add(min(rest, key=lambda name: (gpus[name], name)))
        step = self.how.bf_resolution_s
        start_s = step * math.floor(at_s / step)
        self.kept.append(
            KeptStart(start_s, step * math.ceil((at_s + lasts_s) / step), frozenset(chosen))
        )
