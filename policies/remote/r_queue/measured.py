"""What own and lent GPUs take on a site, in the file that `gputopo remote measure` writes.

It stands in for the paper's rCUDA and Table II in eqs. 4 to 6 of the R queue's model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

import yaml

from policies.errors import ProfileError
from policies.remote.r_queue.model import NetworkSpeeds

_EXPECTED = "expected what `gputopo remote measure` writes: preset, local, remote"


@dataclass(frozen=True, slots=True)
class Side:
    """GPUs of the job's own node, or lent ones: seconds of a call, GB/s, seconds of a kernel."""

    call_s: float
    gb_s: float
    kernel_s: float
    #: The largest deviation of a measured time from the fit, as a share of the time.
    error: float = 0.0
    #: GB/s from GPU to GPU; None where that was not measured.
    gpu_gb_s: float | None = None
    #: What each further job on the network adds to the time of bytes, as a share; eq. 4 has 1.
    shared: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """Both sides under one preset, by its name; `where` and when, in the site's own words."""

    preset: str
    local: Side
    remote: Side
    where: str = ""

    def speeds(self, wires: NetworkSpeeds) -> NetworkSpeeds:
        """The model's figures with those measured; the nodes' own network stays (eq. 1)."""
        local, lent = self.local, self.remote
        return replace(
            wires,
            gpu_latency_s=local.call_s,
            gpu_cpu_gb_s=local.gb_s,
            gpu_gpu_gb_s=local.gpu_gb_s or wires.gpu_gpu_gb_s,
            # What was measured has the network's own latency in it.
            rcuda_latency_s=max(0.0, lent.call_s - wires.net_latency_s),
            rcuda_overhead=wires.net_gb_s / lent.gb_s,
            remote_gpu_gpu_gb_s=lent.gpu_gb_s,
            remote_shared=1.0 if lent.shared is None else lent.shared,
            kernel_stretch=lent.kernel_s / local.kernel_s if local.kernel_s else 1.0,
        )


def parse(text: str, source: str) -> Measured:
    """The file's text. ProfileError: one line with `source`, its name, and what is expected."""
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ProfileError(f"{source}: cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict) or {*values} - {"where"} != {"preset", "local", "remote"}:
        raise ProfileError(f"{source}: {_EXPECTED}")
    texts = {key: values.get(key, "") for key in ("preset", "where")}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise ProfileError(f"{source}: {key}: expected text")
    local, remote = (_side(source, key, values[key]) for key in ("local", "remote"))
    return Measured(texts["preset"], local, remote, texts["where"])


def _side(source: str, name: str, values: object) -> Side:
    keys = {field.name: field.default for field in fields(Side)}
    needed = {key for key, default in keys.items() if default is MISSING}
    if not isinstance(values, Mapping) or not needed <= values.keys() <= keys.keys():
        raise ProfileError(f"{source}: {name}: expected {', '.join(keys)}")
    for key, value in values.items():
        is_left_out = value is None and keys[key] is None
        if not is_left_out and (not is_number(value) or (key.endswith("gb_s") and not value)):
            raise ProfileError(f"{source}: {name}.{key}: {value!r}; expected a number above 0")
    read: dict[str, Any] = {k: v if v is None else float(v) for k, v in values.items()}
    return Side(**read)


def is_number(value: Any) -> bool:
    """A finite number, neither below 0 nor beyond what anybody measures."""
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and math.isfinite(value) and 0 <= value < 1e12
