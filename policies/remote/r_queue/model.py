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


@dataclass(frozen=True, slots=True)
class JobWork:
    """What a job does per node (Table I): seconds of all else, GB moved, calls made."""

    other_s: float
    net_gb: float = 0.0
    gpu_gpu_gb: float = 0.0
    gpu_cpu_gb: float = 0.0
    connections: float = 0.0
    gpu_calls: float = 0.0


def execution_s(work: JobWork, wires: NetworkSpeeds, is_remote: bool, jobs: int = 1) -> float:
    """Seconds of a job whose most crowded node runs `jobs` jobs (this one included); eq. 3.

    Networks are shared fairly (eqs. 1 and 4). With remote GPUs every GPU transfer crosses the
    network (eqs. 2 and 5), else none (eq. 6).
    """
    net_s = wires.net_latency_s * work.connections + work.net_gb * jobs / wires.net_gb_s
    if is_remote:
        moved_gb = work.gpu_gpu_gb + work.gpu_cpu_gb
        latency_s = wires.rcuda_latency_s + wires.net_latency_s
        gpu_s = latency_s * work.gpu_calls
        gpu_s += moved_gb * jobs / wires.net_gb_s * wires.rcuda_overhead
    else:
        gpu_s = wires.gpu_latency_s * work.gpu_calls
        gpu_s += work.gpu_gpu_gb / wires.gpu_gpu_gb_s + work.gpu_cpu_gb / wires.gpu_cpu_gb_s
    return net_s + gpu_s + work.other_s
