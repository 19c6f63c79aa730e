"""What own and lent GPUs take on a site, in the file that `gputopo remote measure` writes.

It stands in for the paper's rCUDA and Table II in eqs. 4 to 6 of the R queue's model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from policies.errors import ProfileError
from policies.remote.r_queue.model import NetworkSpeeds

#: No more than anybody measures; what is divided by is above 0.
FromZero: TypeAlias = Annotated[float, Meta(ge=0, lt=1e12)]
AboveZero: TypeAlias = Annotated[float, Meta(gt=0, lt=1e12)]


class Side(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """GPUs of the job's own node, or lent ones: seconds of a call, GB/s, seconds of a kernel."""

    call_s: FromZero
    gb_s: AboveZero
    kernel_s: FromZero
    #: The largest deviation of a measured time from the fit, as a share of the time.
    error: FromZero = 0.0
    #: GB/s from GPU to GPU; None where that was not measured.
    gpu_gb_s: AboveZero | None = None
    #: What each further job on the network adds to the time of bytes, as a share; eq. 4 has 1.
    shared: FromZero | None = None


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
        return msgspec.yaml.decode(text, type=Measured)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())[:300]
        raise ProfileError(
            f"{source}: {why}; expected what `gputopo remote measure` writes"
        ) from error
