"""A picture of a profile: samples per second over GPUs, with error bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slurm_plugin.errors import PluginError
from slurm_plugin.speed_models.rows import Row


def draw(rows: Sequence[Row], batch: int, title: str, path: Path) -> None:
    """One curve per count of GPUs per node; PluginError without the extra `plot`, or on writing."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise PluginError(
            "matplotlib is not installed; expected for --plot: pip install 'slurm-gputopo[plot]'"
        ) from None
    with matplotlib.rc_context({"svg.hashsalt": "gputopo", "font.size": 9}):
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
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
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        except (OSError, ValueError) as error:
            raise PluginError(f"{path}: {error}; expected a file such as profile.svg") from error
