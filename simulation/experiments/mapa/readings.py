"""What the paper reads off a run: quartiles of effective bandwidth and of execution time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev

import numpy as np

from gres_topology import NodeTopology
from policies.bandwidth.model import eq2
from simulation.core.record import Record
from simulation.experiments.mapa.jobs import effbw_gbps, network_of
from simulation.experiments.mapa.reconstruction import NETWORKS, NeuralNet

#: Which networks' jobs are meant.
Wanted = Callable[[NeuralNet], bool]
#: A box plot's five numbers.
QUANTILES = {"min": 0.0, "p25": 0.25, "p50": 0.5, "p75": 0.75, "max": 1.0}
#: Section 4.1 keeps sensitive and insensitive jobs apart.
GROUPS: Mapping[str, Wanted] = {
    "sensitive": lambda network: network.is_sensitive,
    "insensitive": lambda network: not network.is_sensitive,
}
SENSITIVE = tuple(network for network in NETWORKS if network.is_sensitive)


def five(values: Sequence[float]) -> dict[str, float]:
    """A box plot's five numbers, interpolated; nothing of nothing."""
    if not values:
        return {}
    return {word: float(np.quantile(values, q)) for word, q in QUANTILES.items()}


def times_s(records: Iterable[Record], wanted: Wanted) -> list[float]:
    """Execution times of some networks' jobs; waiting is not execution."""
    return [record.end_s - record.start_s for record in records if wanted(network_of(record.job))]


def bandwidths(
    records: Iterable[Record], topology: NodeTopology, wanted: Wanted, single: float | None = None
) -> list[float]:
    """Predicted effective bandwidth (GB/s) of some networks' jobs.

    `single` is counted for a job of one GPU; None: such jobs are left out.
    """
    found = []
    for record in records:
        (gpus,) = record.placement.gpus.values()
        gbps = effbw_gbps(topology, gpus) if len(gpus) > 1 else single
        if gbps is not None and wanted(network_of(record.job)):
            found.append(gbps)
    return found


def effbw_figures(records: Sequence[Record], topology: NodeTopology) -> dict[str, float]:
    """`GROUP_effbw_QUANTILE_gbps` of the jobs of two GPUs or more, and `GROUP_effbw1_...` of all.

    There a job of one GPU counts as eq. 2 has it without any link, 12.34 GB/s: the paper prints
    12.33 as a 25th percentile, which is the value of no set of two to five GPUs.
    """
    return {
        f"{group}_{metric}_{word}_gbps": value
        for group, wanted in GROUPS.items()
        for metric, single in {"effbw": None, "effbw1": eq2(0, 0, 0)}.items()
        for word, value in five(bandwidths(records, topology, wanted, single)).items()
    }


def _speedups(
    baseline: Sequence[Record], records: Sequence[Record], wanted: Wanted
) -> dict[str, float]:
    """Each of the five numbers of the baseline's times over this run's."""
    before, after = five(times_s(baseline, wanted)), five(times_s(records, wanted))
    return {word: before[word] / after[word] for word in before}


def time_figures(baseline: Sequence[Record], records: Sequence[Record]) -> dict[str, float]:
    """Speedups and throughput of one run against the baseline's of the same jobs.

    Table 3 does not say of which jobs: here they are of each group, of all jobs, and
    (`per_network`) the mean over the sensitive networks.
    """
    groups: dict[str, Wanted] = {**GROUPS, "all": lambda network: True}
    found = {
        f"{group}_speedup_{word}": value
        for group, wanted in groups.items()
        for word, value in _speedups(baseline, records, wanted).items()
    }
    own = [_speedups(baseline, records, _only(network.name)) for network in SENSITIVE]
    for word in QUANTILES:
        values = [each[word] for each in own if word in each]
        if values:
            found[f"per_network_speedup_{word}"] = fmean(values)
    makespans = [max(record.end_s for record in run) for run in (baseline, records)]
    found["throughput"] = makespans[0] / makespans[1]
    found["sensitive_time_p75_s"] = five(times_s(records, GROUPS["sensitive"]))["p75"]
    for name in ("vgg-16", "alexnet"):
        spent = five(times_s(records, _only(name)))
        if spent:
            found[f"{name}_time_p75_s"] = spent["p75"]
    return found


def _only(name: str) -> Wanted:
    return lambda network: network.name == name


def averaged(seeds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means over the seeds, each with its standard deviation as `..._sd`."""
    found: dict[str, float] = {}
    for name in dict.fromkeys(name for one in seeds for name in one):
        values = [one[name] for one in seeds if name in one]
        found[name] = fmean(values)
        found[f"{name}_sd"] = stdev(values) if len(values) > 1 else 0.0
    return found
