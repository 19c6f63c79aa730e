"""The contract of policies that shape jobs and order the queue: Task, Queue, Planned, Scheduler.

A `Scheduler` sees all waiting jobs at once and says with which shape each runs, in which order,
and which start now; a `Policy` then chooses the GPUs of each node. The caller brings the clock
and the free GPUs, and asks again at every arrival and completion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from policies.errors import PolicyError
from policies.performance import Shape, shapes_of
from policies.performance.runs import Floats

#: GENIE, eq. 10: weight of the nodes beside the GPUs.
THETA = 0.4

URGENT, PRIOR, NORMAL = "urgent", "prior", "normal"
#: Classes of service, most pressing first.
CLASSES = (URGENT, PRIOR, NORMAL)


@dataclass(frozen=True)
class Platform:
    """P = <N, G> (GENIE, eq. 1): nodes alike, and every shape they allow, in a fixed order."""

    nodes: int
    gpus_per_node: int

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """Every symmetric shape, fewest nodes first."""
        return shapes_of(self.nodes, self.gpus_per_node)

    @cached_property
    def node_counts(self) -> NDArray[np.int64]:
        """How many nodes each of `shapes` has."""
        return np.array([shape.nodes for shape in self.shapes])

    @cached_property
    def per_node(self) -> NDArray[np.int64]:
        """GPUs per node of every shape."""
        return np.array([shape.gpus_per_node for shape in self.shapes])

    @cached_property
    def gpu_counts(self) -> NDArray[np.int64]:
        """How many GPUs each of `shapes` has in all."""
        return self.node_counts * self.per_node

    @cached_property
    def costs(self) -> Floats:
        """Cost of every shape (eq. 10)."""
        result: Floats = (
            self.gpu_counts / (self.nodes * self.gpus_per_node)
            + THETA * self.node_counts / self.nodes
        )
        return result

    def index(self, shape: Shape) -> int:
        """Where a shape stands in `shapes`; PolicyError where the platform has none such."""
        if shape.nodes > self.nodes or shape.gpus_per_node > self.gpus_per_node:
            raise PolicyError(f"shape {shape}; expected at most {self.nodes}x{self.gpus_per_node}")
        return (shape.nodes - 1) * self.gpus_per_node + shape.gpus_per_node - 1


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One waiting job as schedulers see it; all times in seconds of one clock."""

    job_id: int
    profile: str
    arrival_s: float
    deadline_s: float
    #: Predicted run time per shape of the platform; infinity where the job cannot run so (its
    #: batch does not fit, or the user fixed the shape).
    latency_s: Floats
    #: Cost-effective ratio per shape (GENIE, eq. 11); minus infinity where it cannot run so.
    ratio: Floats
    #: What a user would ask for; schedulers without a model use it.
    requested: Shape
    service: str = NORMAL


@dataclass(frozen=True, slots=True)
class Started:
    """A running job: what it is, its shape, and when it should end as predicted."""

    job_id: int
    profile: str
    shape: Shape
    end_s: float


@dataclass(frozen=True, slots=True)
class Queue:
    """A snapshot: the moment, free GPUs by node name, who waits (by arrival) and who runs."""

    now_s: float
    platform: Platform
    free: Mapping[str, int]
    waiting: Sequence[Task]
    running: Sequence[Started] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """What becomes of one waiting job."""

    task: Task
    shape: Shape
    #: How much longer it could wait and still be in time with this shape (GENIE, eq. 13).
    allowance_s: float
    #: The nodes it starts on now; none: it waits.
    nodes: tuple[str, ...] = ()


@runtime_checkable
class Scheduler(Protocol):
    """One method. The same queue always gets the same plan: ties break by job id."""

    @property
    def name(self) -> str:
        """The name it is known by."""
        ...

    def plan(self, queue: Queue) -> list[Planned]:
        """Every waiting job once, in the order in which they may have GPUs."""
        ...


@dataclass(slots=True)
class FreeGpus:
    """Free GPUs while a plan is made: what fits, and taking it."""

    platform: Platform
    free: dict[str, int]
    _nodes_with: NDArray[np.int64] | None = field(default=None, init=False)
    _fits: NDArray[np.bool_] | None = field(default=None, init=False)

    @property
    def gpus(self) -> int:
        """GPUs still free."""
        return sum(self.free.values())

    def nodes_with(self) -> NDArray[np.int64]:
        """How many nodes have so many GPUs free, by the number, from 0 on."""
        if self._nodes_with is None:
            counts = np.array(list(self.free.values()))
            levels = np.arange(self.platform.gpus_per_node + 1)
            self._nodes_with = (counts[:, None] >= levels).sum(axis=0)
        return self._nodes_with

    def fits(self) -> NDArray[np.bool_]:
        """For every shape of the platform whether there are nodes for it."""
        if self._fits is None:
            self._fits = self.nodes_with()[self.platform.per_node] >= self.platform.node_counts
        return self._fits

    def take(self, at: int) -> tuple[str, ...]:
        """Nodes for a shape (by index) that fits: the fullest ones with room, then by name."""
        shape = self.platform.shapes[at]
        fitting = [name for name, free in self.free.items() if free >= shape.gpus_per_node]
        fitting.sort(key=lambda name: (self.free[name], name))
        chosen = tuple(sorted(fitting[: shape.nodes]))
        for name in chosen:
            self.free[name] -= shape.gpus_per_node
        self._nodes_with = self._fits = None
        return chosen


def in_order(
    queue: Queue, order: Sequence[tuple[Task, int]], *, may_pass: bool = False
) -> list[Planned]:
    """A plan that starts tasks with given shapes (by index), one after the other.

    The first that does not fit stops the queue, or lets others pass.
    """
    free = FreeGpus(queue.platform, dict(queue.free))
    stopped = False
    planned = []
    for task, at in order:
        nodes: tuple[str, ...] = ()
        if not stopped:
            if free.fits()[at]:
                nodes = free.take(at)
            else:
                stopped = not may_pass
        allowance = task.deadline_s - queue.now_s - float(task.latency_s[at])
        planned.append(Planned(task, queue.platform.shapes[at], allowance, nodes))
    return planned
