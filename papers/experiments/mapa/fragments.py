"""mapa-figure4: how much of the best links fragmentation leaves to jobs (section 2.2, Figure 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from gres_topology import NodeTopology
from gres_topology.catalog import load as machine
from papers.experiments import Result
from papers.experiments.mapa.dgx1v import BASELINE, MACHINE, POLICIES, records_of
from papers.experiments.mapa.graphs import renumbered
from papers.experiments.mapa.links import aggregate_gbps, clique_links
from papers.experiments.mapa.readings import averaged, five
from simulation.core.steps import each

#: Section 2.2: jobs; GPUs per job that have links, up to section 4's five.
JOBS, SIZES = 100, (2, 3, 4, 5)
#: Section 2.2: 75 % of the jobs of three GPUs lose 20 % or more, 25 % of them 45 % or more.
PAPER: Mapping[str, Mapping[str, float | None]] = {
    f"{BASELINE}, 3 GPUs": {"share_p25": 0.55, "share_p75": 0.80}
}


def share(topology: NodeTopology, gpus: tuple[int, ...]) -> float:
    """The bandwidth of all links among the GPUs over that of the best set of the size."""
    return aggregate_gbps(clique_links(topology, gpus)) / _ideal_gbps(topology, len(gpus))


@lru_cache(maxsize=1024)
def _ideal_gbps(topology: NodeTopology, k: int) -> float:
    sets = combinations(range(topology.gpus), k)
    return max(aggregate_gbps(clique_links(topology, gpus)) for gpus in sets)


def figures(topology: NodeTopology, policy: str, seed: int, jobs: int) -> dict[str, float]:
    """`SIZE_share_QUANTILE` and `SIZE_suboptimal`, the share of jobs below the best set."""
    shares: dict[int, list[float]] = {size: [] for size in SIZES}
    for record in records_of(policy, topology, seed, jobs=jobs):
        (gpus,) = record.placement.gpus.values()
        if len(gpus) in shares:
            shares[len(gpus)].append(share(topology, tuple(sorted(gpus))))
    figures: dict[str, float] = {}
    for size, values in shares.items():
        figures |= {f"{size} share_{word}": value for word, value in five(values).items()}
        if values:
            figures[f"{size} suboptimal"] = sum(value < 1 for value in values) / len(values)
    return figures


def compare(
    topologies: Mapping[int, NodeTopology], policy: str, jobs: int
) -> dict[str, dict[str, float]]:
    """A row for each number of GPUs, averaged over the seeds."""
    seeds = [figures(topology, policy, seed, jobs) for seed, topology in each(topologies.items())]
    means = averaged(seeds)
    rows: dict[str, dict[str, float]] = {}
    for name, value in means.items():
        size, _, metric = name.partition(" ")
        rows.setdefault(f"{size} GPUs", {})[metric] = value
    return rows


def run(seeds: Sequence[int], jobs: int = JOBS) -> Result:
    """The experiment; `jobs` per seed."""
    topology = machine(MACHINE)
    measured: dict[str, Mapping[str, float | None]] = {}
    for policy in POLICIES:
        rows = compare(dict.fromkeys(seeds, topology), policy, jobs)
        measured |= {f"{policy}, {size}": row for size, row in rows.items()}
    drawn = compare({seed: renumbered(topology, seed) for seed in seeds}, BASELINE, jobs)
    measured |= {f"{BASELINE}, {size}, renumbered": row for size, row in drawn.items()}
    return Result("mapa-figure4", tuple(seeds), measured, PAPER, _NOTES)


_NOTES = (
    "The bandwidth of all links among a job's GPUs over that of the best set of its size on the"
    " empty DGX-1V, as section 2.2 counts it (87 of 125 GB/s for GPUs 1, 2 and 5).",
    "100 jobs per seed, sizes and networks as in section 4, first in, first out, all submitted at"
    " 0; the paper does not say how its 100 jobs were drawn. Times as in mapa-dgx1v. Figure 4 draws"
    " Baseline alone; the other policies are shown beside it.",
    "Printed are two quartiles of the jobs of three GPUs, as bounds: 75 % of these jobs have a"
    " share of 0.80 or less, 25 % one of 0.55 or less.",
    "`renumbered` gives the machine another numbering for each seed, on which lowest ids depend.",
)
