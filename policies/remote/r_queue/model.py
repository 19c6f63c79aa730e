"""The execution time of a job whose GPUs may be remote (the paper's eqs. 1-7, Table II)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NetworkSpeeds:
    """A node's wires, Table II of the paper, and what rCUDA adds (its regression, section II)."""

    net_gb_s: float = 7.0
    net_latency_s: float = 1.2e-6
    gpu_gpu_gb_s: float = 171.0
    gpu_cpu_gb_s: float = 7.0
    gpu_latency_s: float = 0.99e-3
    rcuda_latency_s: float = 3.47e-3
    rcuda_overhead: float = 1.09
    #: GPU to GPU among remote ones; None: over the network (eq. 5).
    remote_gpu_gpu_gb_s: float | None = None
    #: What each further job on the network adds to the time of remote GPUs' bytes (eq. 4: all).
    remote_shared: float = 1.0
    #: A kernel's time on a remote GPU over that on a local one; the paper has none.
    kernel_stretch: float = 1.0


@dataclass(frozen=True, slots=True)
class JobWork:
    """What a job does per node (Table I): seconds of all else, GB moved, calls made."""

    other_s: float
    net_gb: float = 0.0
    gpu_gpu_gb: float = 0.0
    gpu_cpu_gb: float = 0.0
    connections: float = 0.0
    gpu_calls: float = 0.0
    #: Seconds that kernels take on local GPUs.
    gpu_kernel_s: float = 0.0


def execution_s(work: JobWork, wires: NetworkSpeeds, is_remote: bool, jobs: int = 1) -> float:
    """Seconds of a job whose most crowded node runs `jobs` jobs (this one included); eq. 3.

    Networks are shared fairly (eqs. 1 and 4). With remote GPUs every GPU transfer crosses the
    network (eqs. 2 and 5), else none (eq. 6). Kernels are beyond the paper.
    """
    net_s = wires.net_latency_s * work.connections + work.net_gb * jobs / wires.net_gb_s
    if is_remote:
        moved_gb = work.gpu_cpu_gb
        if wires.remote_gpu_gpu_gb_s is None:
            moved_gb += work.gpu_gpu_gb
        latency_s = wires.rcuda_latency_s + wires.net_latency_s
        gpu_s = latency_s * work.gpu_calls + work.gpu_kernel_s * wires.kernel_stretch
        crowd = 1 + wires.remote_shared * (jobs - 1)
        gpu_s += moved_gb * crowd / wires.net_gb_s * wires.rcuda_overhead
        if wires.remote_gpu_gpu_gb_s is not None:
            gpu_s += work.gpu_gpu_gb / wires.remote_gpu_gpu_gb_s
    else:
        gpu_s = wires.gpu_latency_s * work.gpu_calls + work.gpu_kernel_s
        gpu_s += work.gpu_gpu_gb / wires.gpu_gpu_gb_s + work.gpu_cpu_gb / wires.gpu_cpu_gb_s
    return net_s + gpu_s + work.other_s
