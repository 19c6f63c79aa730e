"""Measured against predicted bandwidth, one point per set."""

from __future__ import annotations

from gres_topology.pictures import Picture, charts
from policies.bandwidth.calibration_fit import Fit


def drawn(fit: Fit) -> Picture:
    """A series per number of GPUs; each point is named by its set."""
    series: dict[str, list[tuple[float, float, str]]] = {}
    for gpus, model, measured in zip(fit.sets, fit.predicted, fit.measured, strict=True):
        point = (float(model), float(measured), ",".join(map(str, gpus)))
        series.setdefault(f"{len(gpus)} GPUs", []).append(point)
    title = f"{fit.calibration.machine}: mean error {100 * fit.errors.mean():.1f} %"
    by_size = dict(sorted(series.items(), key=lambda item: int(item[0].split()[0])))
    return charts.scatter(title, by_size, x="model, GB/s", y="measured, GB/s")
