"""What the paper reads off a run: quartiles of effective bandwidth and of execution time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from statistics import fmean, stdev

import numpy as np

from gres_topology import NodeTopology
from papers.experiments.mapa.jobs import effbw_gbps, network_of
from papers.experiments.mapa.links import aggregate_gbps, ring_links
from papers.experiments.mapa.reconstruction import NETWORKS, NeuralNet
from policies.bandwidth.model import eq2
from simulation.core.jobs import SimJob
from simulation.core.record import Record

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
#: Three ways to count a job's effective bandwidth (`effbw_figures`).
READINGS = ("effbw", "effbw1", "logged")
#: Policies that rank the rings of sensitive jobs by eq. 2; all others by the links' sum.
_BY_EQ2 = frozenset({"mapa", "mapa-preserve"})


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
    bandwidths = []
    for record in records:
        (gpus,) = record.placement.gpus.values()
        gbps = effbw_gbps(topology, gpus) if len(gpus) > 1 else single
        if gbps is not None and wanted(network_of(record.job)):
            bandwidths.append(gbps)
    return bandwidths


def logged_gbps(record: Record, topology: NodeTopology) -> float:
    """Effective bandwidth of one job as the authors' own code logs it, GB/s.

    It is that of the ring which the policy chose its GPUs by: of the best by eq. 2 for sensitive
    jobs under Preserve, else of the ring with the most bandwidth. The ring of two GPUs has their
    link twice, there and back, and a job of one GPU has no link (eq. 2: 12.34). From
    github.com/socal-ucr/MAPA, src/TopoUtils.hh, MapaPolicies.hh and Props.hh.
    """
    (gpus,) = record.placement.gpus.values()
    if len(gpus) == 1:
        return eq2(0, 0, 0)
    rings = ring_links(topology, tuple(sorted(gpus)), pair=2)
    if record.placement.policy in _BY_EQ2 and network_of(record.job).is_sensitive:
        return max(eq2(*links) for links in rings)
    return eq2(*max(rings, key=aggregate_gbps))


def effbw_figures(records: Sequence[Record], topology: NodeTopology) -> dict[str, float]:
    """Quantiles of each group's effective bandwidth in three readings.

    - `GROUP_effbw_QUANTILE_gbps`: of the jobs of two GPUs or more.
    - `GROUP_effbw1_...`: of all. A job of one GPU counts as eq. 2 has it without any link, 12.34
      GB/s: the paper prints 12.33 as a 25th percentile, the value of no set of two to five GPUs.
    - `GROUP_logged_...`: of all, as the authors' code logs it (`logged_gbps`).
    """
    figures: dict[str, float] = {}
    for group, wanted in GROUPS.items():
        of = [record for record in records if wanted(network_of(record.job))]
        readings = {
            "effbw": bandwidths(of, topology, wanted),
            "effbw1": bandwidths(of, topology, wanted, eq2(0, 0, 0)),
            "logged": [logged_gbps(record, topology) for record in of],
        }
        figures |= _named(group, readings)
    return figures


def best_figures(jobs: Iterable[SimJob], topology: NodeTopology) -> dict[str, float]:
    """The same figures with every job on the best GPUs of the empty node: no quantile is higher."""
    figures: dict[str, float] = {}
    listed = list(jobs)
    for group, wanted in GROUPS.items():
        sizes = [job.gpus_per_node[0] for job in listed if wanted(network_of(job))]
        readings = {
            "effbw": [_best_gbps(topology, k, 1) for k in sizes if k > 1],
            "effbw1": [_best_gbps(topology, k, 1) for k in sizes],
            "logged": [_best_gbps(topology, k, 2) for k in sizes],
        }
        figures |= _named(group, readings)
    return figures


@lru_cache(maxsize=64)
def _best_gbps(topology: NodeTopology, k: int, pair: int) -> float:
    sets = combinations(range(topology.gpus), k)
    rings = {links for gpus in sets for links in ring_links(topology, gpus, pair)} if k > 1 else ()
    return max((eq2(*links) for links in rings), default=eq2(0, 0, 0))


def _named(group: str, readings: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {
        f"{group}_{reading}_{word}_gbps": value
        for reading, values in readings.items()
        for word, value in five(values).items()
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
    figures = {
        f"{group}_speedup_{word}": value
        for group, wanted in groups.items()
        for word, value in _speedups(baseline, records, wanted).items()
    }
    own = [_speedups(baseline, records, _only(network.name)) for network in SENSITIVE]
    for word in QUANTILES:
        values = [each[word] for each in own if word in each]
        if values:
            figures[f"per_network_speedup_{word}"] = fmean(values)
    makespans = [max(record.end_s for record in run) for run in (baseline, records)]
    figures["throughput"] = makespans[0] / makespans[1]
    figures["sensitive_time_p75_s"] = five(times_s(records, GROUPS["sensitive"]))["p75"]
    for name in ("vgg-16", "alexnet"):
        spent = five(times_s(records, _only(name)))
        if spent:
            figures[f"{name}_time_p75_s"] = spent["p75"]
    return figures


def _only(name: str) -> Wanted:
    return lambda network: network.name == name


def averaged(seeds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means over the seeds, each with its standard deviation as `..._sd`."""
    means: dict[str, float] = {}
    for name in dict.fromkeys(name for one in seeds for name in one):
        values = [one[name] for one in seeds if name in one]
        means[name] = fmean(values)
        means[f"{name}_sd"] = stdev(values) if len(values) > 1 else 0.0
    return means
