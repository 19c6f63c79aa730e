"""What own and lent GPUs take on a site: measured by a probe, fitted, and read by `remote=auto`.

The model is the R queue's (Markthub et al., PDCAT 2014, eqs. 5 and 6): seconds = calls times the
latency of a call + GB moved over the bandwidth + all else, which here is kernels times a kernel's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from slurm_plugin.remote.errors import RemoteError

#: Beyond it, no log of a probe but a mistake.
MOST_LINES = 10_000
_KEYS = ("calls", "gb", "kernels", "seconds")


@dataclass(frozen=True, slots=True)
class Side:
    """GPUs of the job's own node, or lent ones: seconds of a call, GB/s, seconds of a kernel."""

    call_s: float
    gb_s: float
    kernel_s: float
    #: The largest deviation of a measured time from the fit, as a share of the time.
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Both sides under one preset, by its name."""

    preset: str
    local: Side
    remote: Side


def load(path: Path) -> Measured:
    """The file that `write` wrote. RemoteError: one line with the file and what is expected."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RemoteError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    expected = "expected what `gputopo remote measure` writes: preset, local, remote"
    if not isinstance(values, dict) or set(values) != {"preset", "local", "remote"}:
        raise RemoteError(f"{path}: {expected}")
    if not isinstance(values["preset"], str):
        raise RemoteError(f"{path}: preset: expected a name")
    sides = (_side(path, key, values[key]) for key in ("local", "remote"))
    return Measured(values["preset"], *sides)


def _side(path: Path, name: str, values: object) -> Side:
    keys = [field.name for field in fields(Side)]
    if not isinstance(values, dict) or set(values) != set(keys):
        raise RemoteError(f"{path}: {name}: expected {', '.join(keys)}")
    for key, value in values.items():
        if not _is_number(value) or (key == "gb_s" and not value):
            raise RemoteError(f"{path}: {name}.{key}: {value!r}; expected a number above 0")
    return Side(**{key: float(values[key]) for key in keys})


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and math.isfinite(value) and 0 <= value < 1e12


def write(path: Path, measured: Measured) -> None:
    """The file that `load` reads. OSError where it cannot be written."""
    path.write_text(yaml.safe_dump(asdict(measured), sort_keys=False), encoding="utf-8")


def runs(path: Path) -> list[tuple[float, ...]]:
    """A probe's lines: calls, GB moved, kernels and seconds of each run.

    RemoteError names the line that is none.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RemoteError(f"{path}: cannot be read: {error}") from error
    if not 0 < len(lines) <= MOST_LINES:
        raise RemoteError(f"{path}: {len(lines)} lines; expected 1 to {MOST_LINES}")
    return [_run(f"{path}:{number}", line) for number, line in enumerate(lines, 1)]


def _run(where: str, line: str) -> tuple[float, ...]:
    try:
        said: Any = json.loads(line)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, Mapping) or not all(_is_number(said.get(key)) for key in _KEYS):
        shown = '{"calls": 100, "gb": 0.1, "kernels": 3, "seconds": 0.5}'
        raise RemoteError(f"{where}: {line[:80]!r}; expected numbers as {shown}")
    if not said["seconds"]:
        raise RemoteError(f"{where}: seconds: 0; expected a run that took a time")
    return tuple(float(said[key]) for key in _KEYS)


def fit(what: str, measured: Sequence[Sequence[float]]) -> Side:
    """Least squares of the relative error; `what` names the runs in an error.

    RemoteError where the runs do not tell calls, bytes and kernels apart, or where times do not
    grow with each of them.
    """
    import numpy as np

    table = np.asarray(measured, dtype=float)
    counts = table[:, :3] / table[:, 3:]
    # Of columns as large as each other: GB are few where calls are many.
    sizes = np.linalg.norm(counts, axis=0)
    if not sizes.all() or np.linalg.matrix_rank(counts / sizes, tol=1e-3) < 3:
        raise RemoteError(
            f"{what}: the runs do not tell calls, bytes and kernels apart; expected some with many"
            " calls, some with many bytes, some with many kernels"
        )
    found, *_ = np.linalg.lstsq(counts / sizes, np.ones(len(table)), rcond=None)
    call_s, s_gb, kernel_s = (found / sizes).tolist()
    for name, value in (("calls", call_s), ("gb", s_gb), ("kernels", kernel_s)):
        if value <= 0:
            raise RemoteError(
                f"{what}: times do not grow with {name}; expected runs on an idle node, more of"
                f" them, or longer ones"
            )
    error = float(np.abs(counts @ np.array([call_s, s_gb, kernel_s]) - 1).max())
    return Side(call_s, 1 / s_gb, kernel_s, error)
