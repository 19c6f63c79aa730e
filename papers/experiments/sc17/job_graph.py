"""A job's own communication graph (SC17, section 4.1.1) and where its tasks go.

`topo-aware` takes every job for a complete graph of one weight, as the paper's experiments do
(section 5.1): Slurm knows nothing of a job's edges. Here eq. 3 has weights, t = sum of w_ij times
the shortest path between the GPUs of tasks i and j, and algorithms 2 and 3 map single tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from policies.contract.bits import Floats, Ints, mask_of
from policies.patterns.pattern import pattern_of
from policies.topo_aware.machine import MachineGraph
from policies.topo_aware.utility import HEAVIEST, SetScorer
from simulation.errors import SimulationError

#: More tasks than this have too many mappings to try them all.
MOST_TASKS = 6


@dataclass(frozen=True)
class JobGraph:
    """Weights between tasks 0..tasks-1: shape (tasks, tasks), symmetric, 0 on the diagonal.

    A weight is 0 (no communication) to 4 (the paper's for the smallest batches).
    """

    name: str
    weights: Floats = field(compare=False)

    def __post_init__(self) -> None:
        weights = self.weights
        if not 2 <= len(weights) <= MOST_TASKS or weights.shape != (len(weights),) * 2:
            raise SimulationError(f"{self.name}: expected a square of 2 to {MOST_TASKS} tasks")
        if (weights != weights.T).any() or weights.diagonal().any() or not weights.any():
            raise SimulationError(f"{self.name}: expected symmetric weights, 0 on the diagonal")
        if weights.min() < 0 or weights.max() > HEAVIEST:
            raise SimulationError(f"{self.name}: expected weights from 0 to {HEAVIEST}")

    @property
    def tasks(self) -> int:
        """How many GPUs the job asks for."""
        return len(self.weights)

    def cost(self, gpus: Sequence[int], distance: Ints) -> float:
        """Weighted eq. 3 with task i on gpus[i], in 1/SCALE of a path's weight."""
        return float((self.weights * distance[np.ix_(gpus, gpus)]).sum()) / 2


def from_edges(name: str, tasks: int, edges: Mapping[tuple[int, int], float]) -> JobGraph:
    """The graph with these weights by pair of tasks; all other pairs have 0."""
    weights = np.zeros((tasks, tasks))
    for (a, b), weight in edges.items():
        weights[a, b] = weights[b, a] = weight
    return JobGraph(name, weights)


def from_pattern(name: str, tasks: int) -> JobGraph:
    """One of the patterns that hints name, all edges of the largest weight."""
    return from_edges(name, tasks, dict.fromkeys(pattern_of(name).edges(tasks), float(HEAVIEST)))


class GraphScale:
    """Utility of a mapping: that of topo-aware with eq. 3 by the job's graph.

    The least and the most that eq. 3 can be are those of all mappings on the empty node.
    """

    def __init__(self, scale: SetScorer, graph: JobGraph) -> None:
        self.scale, self.graph = scale, graph
        self.distance = scale.machine.distance
        self.least, self.most = _extremes(graph, scale.machine)

    def utility(self, at: Mapping[int, int]) -> float:
        """Of a mapping task -> GPU, or of a part of one; a part's is only for comparisons."""
        tasks, gpus = list(at), list(at.values())
        weights = self.graph.weights[np.ix_(tasks, tasks)]
        cost = float((weights * self.distance[np.ix_(gpus, gpus)]).sum()) / 2
        return self._utility(mask_of(gpus), cost)

    def best(self, free: Sequence[int]) -> tuple[float, float]:
        """The highest utility, and the least of eq. 3, of all mappings onto free GPUs."""
        mappings = _mappings(tuple(free), self.graph.tasks)
        costs = _costs(self.graph, mappings, self.distance)
        masks = (1 << mappings).sum(axis=1)
        utilities = (
            self._utility(int(mask), float(costs[masks == mask].min())) for mask in np.unique(masks)
        )
        return max(utilities), float(costs.min())

    def _utility(self, mask: int, cost: float) -> float:
        terms, settings = self.scale.terms(mask), self.scale.settings
        total = settings.interference * terms.interference
        total += settings.fragmentation * terms.fragmentation
        of = settings.interference + settings.fragmentation
        if self.most > self.least:
            share = (cost - self.least) / (self.most - self.least)
            total += settings.communication * (1 - self.graph.weights.max() / HEAVIEST * share)
            of += settings.communication
        return round(total / of, 9)


def _mappings(gpus: tuple[int, ...], tasks: int) -> Ints:
    """All ways to put the tasks onto the GPUs, shape (ways, tasks)."""
    return np.array(list(permutations(gpus, tasks)), dtype=np.int64)


def _costs(graph: JobGraph, mappings: Ints, distance: Ints) -> Floats:
    """Weighted eq. 3 of each mapping."""
    costs = np.zeros(len(mappings))
    for a, b in zip(*np.nonzero(np.triu(graph.weights)), strict=True):
        costs += graph.weights[a, b] * distance[mappings[:, a], mappings[:, b]]
    return costs


#: (least, most) of eq. 3 on an empty node, by the weights and the node's shape.
_EXTREMES: dict[tuple[bytes, str], tuple[float, float]] = {}


def _extremes(graph: JobGraph, machine: MachineGraph) -> tuple[float, float]:
    key = (graph.weights.tobytes(), machine.topology.shape)
    if key not in _EXTREMES:
        mappings = _mappings(tuple(range(machine.topology.gpus)), graph.tasks)
        costs = _costs(graph, mappings, machine.distance)
        _EXTREMES[key] = float(costs.min()), float(costs.max())
    return _EXTREMES[key]


@dataclass
class GraphBipartition:
    """Algorithms 2 and 3 for tasks that differ.

    The next task is the one that talks most to those taken before and least to the others. As in
    `Bipartition`, a half is judged with as many of the tasks left as fit there, too. Edges to tasks
    that are placed outside of a part count, as the paper's array C has it.
    """

    scale: GraphScale
    _solved: dict[tuple[int, tuple[int, ...], tuple[tuple[int, int], ...]], dict[int, int]] = field(
        default_factory=dict
    )

    def solve(self) -> dict[int, int]:
        """Task -> GPU."""
        tasks = tuple(range(self.scale.graph.tasks))
        return self._place(self.scale.scale.free, tasks, {})

    def _place(
        self, free: int, tasks: tuple[int, ...], outside: Mapping[int, int]
    ) -> dict[int, int]:
        """The GPUs of these tasks within `free`, which has room for them."""
        if not tasks:
            return {}
        if free.bit_count() == 1:
            return {tasks[0]: free.bit_length() - 1}
        key = (free, tasks, tuple(sorted(outside.items())))
        if key not in self._solved:
            halves = self.scale.scale.machine.cut(free)
            here = self._divide(halves, self._ordered(tasks, outside), outside)
            self._solved[key] = self._both(halves, here, tasks, outside)
        return self._solved[key]

    def _both(
        self,
        halves: tuple[int, int],
        here: tuple[int, ...],
        tasks: tuple[int, ...],
        outside: Mapping[int, int],
    ) -> dict[int, int]:
        first = self._place(halves[0], tuple(sorted(here)), outside)
        there = tuple(task for task in tasks if task not in here)
        return first | self._place(halves[1], there, {**outside, **first})

    def _ordered(self, tasks: tuple[int, ...], outside: Mapping[int, int]) -> list[int]:
        """The next is the one with the most weight to those before over that to the others."""
        weights, left, taken = self.scale.graph.weights, list(tasks), list(outside)
        ordered: list[int] = []
        while left:
            gain = {
                task: float(weights[task, taken].sum() - weights[task, left].sum()) for task in left
            }
            task = max(left, key=lambda one: (gain[one], -one))
            ordered.append(task)
            taken.append(task)
            left.remove(task)
        return ordered

    def _divide(
        self, halves: tuple[int, int], tasks: list[int], outside: Mapping[int, int]
    ) -> tuple[int, ...]:
        """The tasks that go to the first half."""
        room = [half.bit_count() for half in halves]
        sides: tuple[list[int], list[int]] = ([], [])
        for at, task in enumerate(tasks):
            rest = tasks[at + 1 :]
            worths = {}
            for side in (0, 1):
                along = rest[: max(0, room[side] - 1)]
                if room[side] and len(rest) - len(along) <= room[1 - side]:
                    own = {*sides[side], task, *along}
                    here = tuple(one for one in tasks if (one in own) == (side == 0))
                    whole = self._both(halves, here, tuple(tasks), outside)
                    worths[side] = self.scale.utility({**outside, **whole})
            side = max(worths, key=lambda one: (worths[one], -one))
            sides[side].append(task)
            room[side] -= 1
        return tuple(sides[0])
