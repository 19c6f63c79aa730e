"""Where the policies lie between bandwidth and PCIe hops: `python -m simulation.report.pareto`.

One node, the same backlog of jobs of 1-5 GPUs for all, first in, first out. A row per policy: mean
share of the ideal and share of rings with a PCIe hop over jobs of two GPUs or more, and the share
counting single GPUs as 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import NamedTuple

from gres_topology.catalog import load
from policies.registry import registry
from simulation.core.jobs import DURATION_S, mixed_jobs
from simulation.core.link_quality import judge
from simulation.models.placing import Simulator
from simulation.stock import STOCK, NodeOrder, policy_named

#: Stock Slurm's kinds that differ on one node.
STOCK_OF_ONE_NODE = [name for name, kind in STOCK.items() if kind.order is NodeOrder.BEST_FIT]


class Point(NamedTuple):
    """One run: shares from 0 to 1, the first two over jobs of two GPUs or more."""

    share: float
    pcie_hops: float
    share_all_jobs: float


def run(
    policy: str, machine: str, seeds: Sequence[int], jobs: int, limit_s: float | None = None
) -> list[Point]:
    """One policy over all seeds, one point per seed.

    `limit_s`: all jobs have this time limit (seconds); None: each that of what it takes.
    """
    topology, points = load(machine), []
    for seed in seeds:
        simulator = Simulator({machine: topology}, policy_named(policy))
        mix = mixed_jobs(seed, jobs)
        if limit_s is not None:
            mix = [replace(job, walltime_s=limit_s) for job in mix]
        records = simulator.run(mix).records
        every = [judge(topology, record.placement.gpus[machine]) for record in records]
        rings = [verdict for verdict in every if verdict.gpus > 1]
        points.append(
            Point(
                fmean(verdict.share for verdict in rings),
                fmean(verdict.pcie_hop for verdict in rings),
                fmean(verdict.share for verdict in every),
            )
        )
    return points


def heading(machine: str, jobs: int, seeds: Sequence[int]) -> str:
    """What was run, and the names of the columns."""
    return (
        f"# {machine}, {jobs} jobs of 1-5 GPUs, FIFO, durations uniform"
        f" {DURATION_S[0]}-{DURATION_S[1]} s, seeds {seeds[0]}-{seeds[-1]}\n"
        f"{'policy':28} {'share':>7} {'stdev':>7} {'hops':>7} {'all jobs':>9}"
    )


def row(name: str, shares: Sequence[float], hops: Sequence[float], every: str = "") -> str:
    """One line of the table; a share and a part with a hop for each seed."""
    spread = stdev(shares) if len(shares) > 1 else 0.0
    return f"{name:28} {fmean(shares):7.3f} {spread:7.3f} {fmean(hops):7.3f} {every:>9}"


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--machine", default="dgx1v")
    options.add_argument("--seeds", type=int, default=20, help="how many seeds")
    options.add_argument("--first-seed", type=int, default=0)
    options.add_argument("--jobs", type=int, default=150)
    options.add_argument("--limit", type=float, help="seconds, one for all; else what each takes")
    chosen = options.parse_args(argv)
    registry.load_plugins()
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    print(heading(chosen.machine, chosen.jobs, seeds))
    for name in (*registry.names(), *STOCK_OF_ONE_NODE):
        runs = run(name, chosen.machine, seeds, chosen.jobs, chosen.limit)
        every = f"{fmean(point.share_all_jobs for point in runs):.3f}"
        print(row(name, [r.share for r in runs], [r.pcie_hops for r in runs], every))


if __name__ == "__main__":
    main()
