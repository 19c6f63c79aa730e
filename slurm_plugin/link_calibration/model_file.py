"""The file that keeps a calibration: YAML, written by `gputopo calibrate`, read by the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from gres_topology import NodeTopology
from policies.bandwidth.calibrated import WEIGHTS, Calibration, remember
from policies.bandwidth.calibration_fit import Fit
from policies.errors import PolicyError
from slurm_plugin.link_calibration.errors import CalibrationError

VERSION = 1
EXPECTED = "a bandwidth model written by gputopo calibrate"
_KEYS = ("calibration", "machine", "shape", "sizes", *WEIGHTS, "errors", "measured")


def model_text(fit: Fit, sources: Mapping[tuple[int, ...], list[str]]) -> str:
    """The file's text; `sources` names the logs of each set."""
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
    return head + yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=100)


def write_model(path: Path, content: str) -> None:
    """Write the file; raises CalibrationError."""
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise CalibrationError(f"{path}: {error.strerror}; cannot write the model") from None


def read_model(path: Path) -> Calibration:
    """The calibration in `path`; raises CalibrationError, one line that starts with its name."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CalibrationError(f"{path}: {error.strerror}; expected {EXPECTED}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError):
        raise CalibrationError(f"{path}: not YAML; expected {EXPECTED}") from None
    if not isinstance(found, dict) or "calibration" not in found:
        raise CalibrationError(f"{path}: no key `calibration`; expected {EXPECTED}")
    if found["calibration"] != VERSION:
        raise CalibrationError(
            f"{path}: calibration: {found['calibration']!r}; expected {VERSION}: calibrate again"
        )
    missing = [key for key in _KEYS[:-2] if key not in found]
    unknown = [str(key) for key in found if key not in _KEYS]
    if missing or unknown:
        wrong = f"{missing[0]}: missing" if missing else f"unknown key {unknown[0]}"
        raise CalibrationError(f"{path}: {wrong}; expected {', '.join(_KEYS)}")
    return _calibration(path, found)


def _calibration(path: Path, found: Mapping[str, Any]) -> Calibration:
    sizes = found["sizes"]
    if not (isinstance(sizes, list) and len(sizes) == 2 and all(type(n) is int for n in sizes)):
        raise CalibrationError(f"{path}: sizes: {sizes!r}; expected two numbers of GPUs")
    for key in WEIGHTS:
        if type(found[key]) not in (int, float):
            raise CalibrationError(f"{path}: {key}: {found[key]!r}; expected a number")
    for key in ("machine", "shape"):
        if not isinstance(found[key], str):
            raise CalibrationError(f"{path}: {key}: {found[key]!r}; expected a text")
    try:
        return Calibration(
            machine=found["machine"],
            shape=found["shape"],
            sizes=(sizes[0], sizes[1]),
            **{key: float(found[key]) for key in WEIGHTS},
        )
    except PolicyError as error:
        raise CalibrationError(f"{path}: {error}") from error


def with_model(topology: NodeTopology, path: Path) -> NodeTopology:
    """The topology with the model in `path`; raises CalibrationError if it is another's."""
    return calibrated(topology, read_model(path), path)


def calibrated(topology: NodeTopology, calibration: Calibration, path: Path) -> NodeTopology:
    """The topology with a model that was read from `path`; raises CalibrationError likewise."""
    if calibration.shape != topology.shape:
        raise CalibrationError(
            f"{path}: fitted to {calibration.machine} ({calibration.shape}), not to"
            f" {topology.name} ({topology.shape}); expected a model of this machine:"
            " calibrate with its topology"
        )
    return replace(topology, calibration=remember(calibration))
