"""How much a job uses the network if its GPUs are remote.

The `remote` part of the job's profile (docs/profiles.md) counts first, then what DRMaestro's
thesis measured of the Rodinia application of that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from policies.remote.drmaestro import RODINIA
from policies.remote.drmaestro.profiles import UNKNOWN_SENSITIVITY
from policies.remote.r_queue import JobWork, NetworkSpeeds, execution_s
from slurm_plugin.base.job_notes.loan import Loan
from slurm_plugin.learn.job_profiles import Remote

#: The network share of a job about which nothing is known: the thesis's largest (NW).
UNKNOWN_SHARE = max(known.idle for known in RODINIA.values())


@dataclass(frozen=True, slots=True)
class NetworkUse:
    """One job's use of the network."""

    #: What the R queue's model computes with; None where the job's run time is not known.
    work: JobWork | None = None
    #: The share of its time that is network, on an idle network.
    share: float = UNKNOWN_SHARE
    #: A full network lengthens the job by this share.
    sensitivity: float = UNKNOWN_SENSITIVITY
    #: The slowdown that the job accepts, as a factor; None where its profile does not say.
    max_slowdown: float | None = None


#: The use of a job without a profile.
UNKNOWN = NetworkUse()


def network_use(name: str, written: Mapping[str, Remote], wires: NetworkSpeeds) -> NetworkUse:
    """What the profile `name` says; UNKNOWN for a name about which nothing is known."""
    said, measured = written.get(name), RODINIA.get(name)
    if said is None:
        return NetworkUse(None, measured.idle, measured.sensitivity) if measured else UNKNOWN
    work = _work(said, wires)
    share, sensitivity = said.network_share, said.sensitivity
    if share is None:
        share = _share(work, wires) if work else measured.idle if measured else UNKNOWN_SHARE
    if sensitivity is None:
        sensitivity = measured.sensitivity if measured else UNKNOWN_SENSITIVITY
    return NetworkUse(work, share, sensitivity, said.max_slowdown)


def _work(said: Remote, wires: NetworkSpeeds) -> JobWork | None:
    """The work behind `run_s`, the time with local GPUs. GPU calls and transfers are part of it."""
    if said.run_s is None:
        return None
    work = JobWork(
        0.0,
        gpu_calls=said.gpu_calls,
        gpu_cpu_gb=said.gpu_cpu_gb,
        gpu_gpu_gb=said.gpu_gpu_gb,
        gpu_kernel_s=said.gpu_kernel_s,
    )
    return replace(work, other_s=max(0.0, said.run_s - execution_s(work, wires, False)))


def _share(work: JobWork, wires: NetworkSpeeds) -> float:
    """The time that remote GPUs add, as a share of the time with them."""
    near_s, far_s = execution_s(work, wires, False), execution_s(work, wires, True)
    return max(0.0, 1 - near_s / far_s) if far_s else 0.0


def network_loads(running: Iterable[tuple[Loan, float]]) -> dict[str, float]:
    """How much of each node's network the running loans take, from 0 to 1.

    Every lent GPU takes, at both ends, the share of its job's time that is network.
    """
    loads: dict[str, float] = {}
    for loan, share in running:
        for donor in loan.donors:
            for name in (loan.host, donor.node):
                loads[name] = loads.get(name, 0.0) + share * donor.gpus
    return {name: min(1.0, load) for name, load in loads.items()}
