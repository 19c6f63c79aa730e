"""A picture of a profile: samples per second over GPUs, with error bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gres_topology.drawing import figure
from slurm_plugin.errors import PluginError
from slurm_plugin.speed_models.predictions import Prediction


def draw(rows: Sequence[Prediction], batch: int, title: str, path: Path) -> None:
    """One curve per count of GPUs per node; TopologyError or PluginError where it cannot."""
    with figure(7, 4, is_constrained=True, font_size=9) as drawn:
        axes = drawn.add_subplot()
        for per_node in sorted({row.shape.gpus_per_node for row in rows}):
            of_it = [row for row in rows if row.shape.gpus_per_node == per_node]
            rates = [row.samples_per_s for row in of_it]
            # A long step is a low rate, so the bounds change places.
            below = [row.samples_per_s - batch / row.estimate.high_s for row in of_it]
            above = [batch / row.estimate.low_s - row.samples_per_s for row in of_it]
            axes.errorbar(
                [row.shape.gpus for row in of_it], rates, yerr=(below, above),
                marker="o", capsize=3, linewidth=1, label=f"{per_node} per node",
            )  # fmt: skip
        axes.set_xlabel("GPUs")
        axes.set_ylabel("samples per second")
        axes.set_ylim(bottom=0)
        axes.set_title(title)
        axes.legend()
        try:
            drawn.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        except (OSError, ValueError) as error:
            raise PluginError(f"{path}: {error}; expected a file such as profile.svg") from error
