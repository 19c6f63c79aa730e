"""Measured against predicted bandwidth, one point per set (extra `plot`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gres_topology.drawing import figure
from policies.bandwidth.calibration_fit import Fit
from slurm_plugin.errors import PluginError


def draw(fit: Fit, path: Path) -> None:
    """Write the picture to `path` (.svg, .png, .pdf); raises PluginError or TopologyError."""
    with figure(6, 6) as drawn:
        _fill(drawn.add_subplot(), fit)
        try:
            drawn.savefig(path)
        except (OSError, ValueError) as error:
            raise PluginError(f"{path}: {error}; cannot draw") from None


def _fill(axes: Any, fit: Fit) -> None:
    most = 1.1 * float(max(fit.measured.max(), fit.predicted.max()))
    axes.plot([0, most], [0, most], color="#90a4ae", linewidth=1)
    for size in sorted({len(gpus) for gpus in fit.sets}):
        rows = [at for at, gpus in enumerate(fit.sets) if len(gpus) == size]
        axes.scatter(fit.predicted[rows], fit.measured[rows], label=f"{size} GPUs")
    for gpus, x, y in zip(fit.sets, fit.predicted, fit.measured, strict=True):
        axes.annotate(",".join(map(str, gpus)), (x, y), fontsize=6, alpha=0.7)
    axes.set(xlim=(0, most), ylim=(0, most), xlabel="model, GB/s", ylabel="measured, GB/s")
    axes.set_title(f"{fit.calibration.machine}: mean error {100 * fit.errors.mean():.1f} %")
    axes.legend()
