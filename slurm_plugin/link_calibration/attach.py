"""Gives a topology its bandwidth model, after a look whether it was fitted to that machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gres_topology import NodeTopology
from policies.bandwidth.calibrated import Calibration, remember
from slurm_plugin.link_calibration import model_file
from slurm_plugin.link_calibration.errors import CalibrationError


def with_model(topology: NodeTopology, path: Path) -> NodeTopology:
    """The topology with the model in `path`; raises CalibrationError if it is another's."""
    return calibrated(topology, model_file.read(path), path)


def calibrated(topology: NodeTopology, calibration: Calibration, path: Path) -> NodeTopology:
    """The topology with a model that was read from `path`; raises CalibrationError likewise."""
    if calibration.shape != topology.shape:
        raise CalibrationError(
            f"{path}: fitted to {calibration.machine} ({calibration.shape}), not to"
            f" {topology.name} ({topology.shape}); expected a model of this machine:"
            " calibrate with its topology"
        )
    return replace(topology, calibration=remember(calibration))
