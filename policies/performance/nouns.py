"""What every performance model speaks (GENIE, Chen et al., TPDS, section 5.1).

A model says how long one iteration of a job takes on a shape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from policies.performance.runs import Columns, Floats, Run, columns, columns_of_runs

#: The two kinds of task. Inference does not synchronise (GENIE, observation 3).
TRAINING, INFERENCE = "training", "inference"
TASKS = (TRAINING, INFERENCE)
#: Two-sided 90 % of a normal distribution, in standard deviations.
NINETY = 1.645


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """A symmetric placement s = <d_node, d_g/n> (GENIE, eq. 3)."""

    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.nodes * self.gpus_per_node

    def local_batch(self, batch: int) -> int:
        """Samples of the GPU that gets most of a global batch, per iteration (eq. 6)."""
        return -(-batch // self.gpus)

    def __str__(self) -> str:
        return f"{self.nodes}x{self.gpus_per_node}"


@dataclass(frozen=True, slots=True)
class Work:
    """A task t = <w_type, w_bat, w_iter> (GENIE, eq. 2): `batch` samples per iteration."""

    profile: str
    batch: int
    iterations: int
    task: str = TRAINING


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds of one iteration, and the bounds between which 9 of 10 measurements fall."""

    step_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceModel(ABC):
    """How long one iteration of one profile takes, fitted from measured runs."""

    #: The kind's name.
    kind: ClassVar[str]
    #: Standard deviation of log(step) over the runs it was fitted from.
    deviation: float
    #: Samples one GPU holds: the largest local batch that ran.
    max_local_batch: int
    #: Seconds before the first iteration (eq. 4).
    startup_s: float = 0.0

    def steps_s(self, shapes: Sequence[Shape], batch: int, task: str = TRAINING) -> Floats:
        """Seconds per iteration for each shape, whether or not the batch fits there."""
        rows = ((shape.nodes, shape.gpus, self._local_batch(shape, batch)) for shape in shapes)
        return self._step_s(columns(rows), task)

    def runs_s(self, runs: Sequence[Run]) -> Floats:
        """What the model says of measured runs, seconds per iteration."""
        return self._step_s(columns_of_runs(runs), TRAINING)

    @abstractmethod
    def estimate(self, shape: Shape, batch: int, task: str = TRAINING) -> Estimate:
        """One shape's seconds with their bounds."""

    def _local_batch(self, shape: Shape, batch: int) -> float:
        """Samples per GPU that the model counts with."""
        return shape.local_batch(batch)

    @abstractmethod
    def _step_s(self, table: Columns, task: str) -> Floats:
        """Seconds per iteration for each row."""


def shapes_of(nodes: int, gpus_per_node: int) -> tuple[Shape, ...]:
    """Every symmetric shape of a platform with so many nodes (eq. 1's limits)."""
    return tuple(
        Shape(count, gpus) for count in range(1, nodes + 1) for gpus in range(1, gpus_per_node + 1)
    )


def fitting(shapes: Sequence[Shape], batch: int, max_local_batch: int) -> list[Shape]:
    """The shapes whose GPUs hold their part of the batch and have at least one sample each."""
    return [
        shape
        for shape in shapes
        if shape.local_batch(batch) <= max_local_batch and shape.gpus <= batch
    ]
