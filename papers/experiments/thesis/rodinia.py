"""thesis-rodinia: section 3.3.3, what a full network does to applications with a remote GPU.

Figure 14's shares, which the text prints for seven of eight applications, beside those of
simulated runs: the application alone, and beside one that fills the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from papers.experiments import Result
from papers.simulators.planned_loans import PlannedJob, PlannedLoanSimulator
from policies import Request
from policies.remote import NodeCapacity, RemoteJob
from policies.remote.drmaestro import RODINIA, DRMaestro, NetworkProfile

#: Seconds on a local GPU; no share depends on it.
ALONE_S = 100.0
#: An application that does nothing but fill the network, as Iperf does.
HOG = NetworkProfile(0.9999, 0.9999)


def _job(network: NetworkProfile) -> PlannedJob:
    asked = RemoteJob(Request((1,)), cpus=1, memory_mb=1, sensitivity=network.sensitivity)
    return PlannedJob(0.0, asked, ALONE_S, network)


def execution_s(network: NetworkProfile, *beside: NetworkProfile) -> float:
    """Seconds of a job whose one GPU is remote, beside others between the same two machines."""
    nodes = {
        "host": NodeCapacity("host", 0, 1 + len(beside), 1 + len(beside)),
        "donor": NodeCapacity("donor", (1 << 1 + len(beside)) - 1, 0, 0),
    }
    jobs = [_job(one) for one in (network, *beside)]
    return PlannedLoanSimulator(nodes, DRMaestro()).run(jobs)[0].execution_s


def figures(network: NetworkProfile) -> dict[str, float]:
    """Shares of the time spent on the network, alone and beside HOG, and what follows."""
    alone_s, loaded_s = execution_s(network), execution_s(network, HOG)
    return {
        "network_share_alone": 1 - ALONE_S / alone_s,
        "network_share_loaded": 1 - ALONE_S / loaded_s,
        "slowdown": loaded_s / alone_s,
        "network_part_stretched": (loaded_s - ALONE_S) / (alone_s - ALONE_S),
        "slowdown_beside_its_like": execution_s(network, network) / alone_s,
    }


def run(seeds: Sequence[int]) -> Result:
    """The experiment; it draws nothing, so seeds change nothing."""
    measured: dict[str, Mapping[str, float | None]] = {
        name: figures(network) for name, network in RODINIA.items()
    }
    said: dict[str, Mapping[str, float | None]] = {
        name: {"network_share_alone": network.idle, "network_share_loaded": network.loaded}
        for name, network in RODINIA.items()
    }
    return Result("thesis-rodinia", (), measured, said, _NOTES)


_NOTES = (
    "The printed shares are put in as each application's profile. That they come out again says"
    " only that the simulator lengthens the network's part and nothing else. Nothing was measured.",
    "slowdown is what the shares say of the whole application on a full network against an idle"
    " one, and network_part_stretched of its network part alone: 1.2 to 9.8 times, so one congested"
    " network does not lengthen everybody's transfers by one factor.",
    "slowdown_beside_its_like: two of the application between the same machines, where traffic is"
    " the share of time that each spends on an idle network. The thesis does not measure it.",
    "Hotspot is in Figure 14 but its shares are not printed. The thesis measured on four machines"
    " of K80 over 10 Gbit/s with HFCUDA, its own middleware, and says that the cost of remote GPUs"
    " themselves is not its subject (section 3.3).",
)
