"""A picture of a profile: samples per second over GPUs, with error bars."""

from __future__ import annotations

from collections.abc import Sequence

from gres_topology.pictures import Picture, charts
from slurm_plugin.learn.speed_models.predictions import Prediction


def drawn(rows: Sequence[Prediction], batch: int, title: str) -> Picture:
    """One curve per count of GPUs per node."""
    points: dict[str, list[tuple[float, float]]] = {}
    spread: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(rows, key=lambda row: (row.shape.gpus_per_node, row.shape.gpus)):
        name = f"{row.shape.gpus_per_node} per node"
        # A long step is a low rate, so the bounds change places.
        below = row.samples_per_s - batch / row.estimate.high_s
        above = batch / row.estimate.low_s - row.samples_per_s
        points.setdefault(name, []).append((row.shape.gpus, row.samples_per_s))
        spread.setdefault(name, []).append((below, above))
    return charts.lines(
        title, points, x="GPUs", y="samples per second", has_dots=True, spread=spread
    )
