"""The file that keeps a calibration: YAML, written by `gputopo calibrate`, read by the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import yaml

from gres_topology import NodeTopology, plain_file
from policies.bandwidth.calibrated import WEIGHTS, Calibration, remember
from policies.bandwidth.calibration_fit import Fit
from slurm_plugin.errors import PluginError

VERSION = 1
EXPECTED = "a bandwidth model written by gputopo calibrate"
_KEYS = ("calibration", "machine", "shape", "sizes", *WEIGHTS, "errors", "measured")


def write_model(path: Path, fit: Fit, sources: Mapping[tuple[int, ...], list[str]]) -> None:
    """Write the file; `sources` names the logs of each set. Raises PluginError."""
    made = fit.calibration
    content = {
        "calibration": VERSION,
        "machine": made.machine,
        "shape": made.shape,
        "sizes": list(made.sizes),
        **dict(zip(WEIGHTS, made.weights, strict=True)),
        "errors": {
            "mean": round(float(fit.errors.mean()), 4),
            "worst": round(float(fit.errors.max()), 4),
            "unseen": round(float(fit.unseen.mean()), 4),
        },
        "measured": [
            {
                "gpus": list(gpus),
                "gbps": round(float(gbps), 3),
                "model_gbps": round(float(predicted), 3),
                "logs": sources[gpus],
            }
            for gpus, gbps, predicted in zip(fit.sets, fit.measured, fit.predicted, strict=True)
        ],
    }
    head = "# Written by gputopo calibrate; named by `bandwidth_model` in gputopo.yaml.\n"
    body = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=100)
    try:
        path.write_text(head + body, encoding="utf-8")
    except OSError as error:
        raise PluginError(f"{path}: {error.strerror}; cannot write the model") from None


def read_model(path: Path) -> Calibration:
    """The calibration in `path`; raises PluginError, one line that starts with its name."""
    try:
        content = yaml.safe_load(plain_file.read_text(path))
    except OSError as error:
        raise PluginError(f"{path}: {error.strerror}; expected {EXPECTED}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError):
        raise PluginError(f"{path}: not YAML; expected {EXPECTED}") from None
    if not isinstance(content, dict) or "calibration" not in content:
        raise PluginError(f"{path}: no key `calibration`; expected {EXPECTED}")
    if content["calibration"] != VERSION:
        raise PluginError(
            f"{path}: calibration: {content['calibration']!r}; expected {VERSION}: calibrate again"
        )
    unknown = [str(key) for key in content if key not in _KEYS]
    if unknown:
        raise PluginError(f"{path}: unknown key {unknown[0]}; expected {', '.join(_KEYS)}")
    try:
        # A PolicyError of Calibration is a ValueError, so it arrives as a ValidationError.
        return msgspec.convert(content, Calibration)
    except msgspec.ValidationError as error:
        raise PluginError(f"{path}: {error}; expected {EXPECTED}") from error


def calibrated(topology: NodeTopology, calibration: Calibration, path: Path) -> NodeTopology:
    """The topology with a model read from `path`; PluginError where it is of another machine."""
    if calibration.shape != topology.shape:
        raise PluginError(
            f"{path}: fitted to {calibration.machine} ({calibration.shape}), not to"
            f" {topology.name} ({topology.shape}); expected a model of this machine:"
            " calibrate with its topology"
        )
    return replace(topology, calibration=remember(calibration))
