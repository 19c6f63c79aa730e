"""A profile in a line, and its predictions as rows: one per shape that holds the batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from policies.performance import Estimate, PerformanceModel, Run, Shape, fitting, shapes_of
from slurm_plugin.errors import PluginError


@dataclass(frozen=True, slots=True)
class Prediction:
    """One shape: seconds per iteration with bounds, samples per second."""

    shape: Shape
    local_batch: int
    estimate: Estimate
    samples_per_s: float


def in_words(name: str, task: str, model: PerformanceModel, runs: Sequence[Run]) -> str:
    """One line about a profile."""
    return (
        f"{name} ({task}): {model.kind}, from {len(runs)} runs, off by"
        f" {100 * (math.exp(model.deviation) - 1):.1f} % (one standard deviation);"
        f" one GPU holds {model.max_local_batch} samples"
    )


def predictions(
    model: PerformanceModel, batch: int, task: str, nodes: int, gpus_per_node: int
) -> list[Prediction]:
    """Rows for every shape of so many nodes; PluginError where none holds the batch."""
    shapes = fitting(shapes_of(nodes, gpus_per_node), batch, model.max_local_batch)
    if not shapes:
        raise PluginError(
            f"batch {batch} fits no shape of up to {nodes}x{gpus_per_node} GPUs; one GPU was seen"
            f" with at most {model.max_local_batch} samples: expected a batch of up to"
            f" {model.max_local_batch * nodes * gpus_per_node}"
        )
    rows = []
    for shape in shapes:
        estimate = model.estimate(shape, batch, task)
        rows.append(Prediction(shape, shape.local_batch(batch), estimate, batch / estimate.step_s))
    return rows
