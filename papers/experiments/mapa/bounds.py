"""The best plan there is if all jobs are known beforehand: a bound, for one node of up to 8 GPUs.

First in, first out with stated durations, every job starts and ends at the same moments on any
GPUs. So the best placement of all jobs together is a longest path over "which job holds which
GPUs" (Viterbi). `python -m papers.experiments.mapa.bounds` prints it as rows of the table of
`python -m simulation.report.pareto`.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Sequence

from gres_topology import NodeTopology
from gres_topology.catalog import load
from policies.contract.bits import gpus_of, subsets
from simulation.core.jobs import SimJob, mixed_jobs
from simulation.core.link_quality import judge
from simulation.errors import SimulationError
from simulation.report.pareto import heading, row

#: Weights of a PCIe hop against the ideal bandwidth, a row each.
HOP_WEIGHTS = (0.0, 0.3, 1.0)
#: Masks held by running jobs, as sorted (job index, mask) pairs.
_State = tuple[tuple[int, int], ...]
#: Worth so far, share so far, hops so far.
_Value = tuple[float, float, int]


def _events(jobs: Sequence[SimJob], gpus: int) -> list[tuple[bool, int]]:
    """(starts?, job index) in order, first in first out from a full backlog."""
    events: list[tuple[bool, int]] = []
    running: list[tuple[float, int, int]] = []
    free, now = gpus, 0.0
    for index, job in enumerate(jobs):
        if len(job.gpus_per_node) != 1 or job.gpus_per_node[0] > gpus or job.submit_s:
            raise SimulationError(
                f"job {job.job_id}: the bound takes single-node jobs submitted at 0 that fit"
            )
        while free < job.gpus_per_node[0] or (running and running[0][0] == now):
            now, ended, count = heapq.heappop(running)
            free += count
            events.append((False, ended))
        free -= job.gpus_per_node[0]
        heapq.heappush(running, (now + job.duration_s, index, job.gpus_per_node[0]))
        events.append((True, index))
    return events


def best_possible(
    topology: NodeTopology, jobs: Sequence[SimJob], hop_weight: float
) -> tuple[float, float]:
    """(mean share, share of rings with a PCIe hop) of the best plan for these jobs.

    Maximises the sum over jobs of two GPUs or more of share - hop_weight * (has a hop).
    """
    options: dict[int, list[tuple[int, float, int]]] = {}
    for k in {job.gpus_per_node[0] for job in jobs}:
        verdicts = [
            (int(mask), judge(topology, gpus_of(int(mask)))) for mask in subsets(topology.gpus, k)
        ]
        options[k] = [(m, v.share if k > 1 else 0.0, int(v.pcie_hop)) for m, v in verdicts]
    states: dict[_State, _Value] = {(): (0.0, 0.0, 0)}
    for starts, index in _events(jobs, topology.gpus):
        if starts:
            states = _start(states, index, options[jobs[index].gpus_per_node[0]], hop_weight)
        else:
            states = _end(states, index)
    _, share, hops = max(states.values())
    rings = sum(job.gpus_per_node[0] > 1 for job in jobs)
    return share / rings, hops / rings


def _end(states: dict[_State, _Value], index: int) -> dict[_State, _Value]:
    after: dict[_State, _Value] = {}
    for state, value in states.items():
        left = tuple(pair for pair in state if pair[0] != index)
        if left not in after or after[left] < value:
            after[left] = value
    return after


def _start(
    states: dict[_State, _Value],
    index: int,
    options: list[tuple[int, float, int]],
    hop_weight: float,
) -> dict[_State, _Value]:
    after: dict[_State, _Value] = {}
    for state, (worth, share, hops) in states.items():
        used = sum(mask for _, mask in state)
        for mask, gain, hop in options:
            if not mask & used:
                value = (worth + gain - hop_weight * hop, share + gain, hops + hop)
                after[(*state, (index, mask))] = value
    return after


def main(argv: Sequence[str] | None = None) -> None:
    """Print the rows."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--machine", default="dgx1v")
    options.add_argument("--seeds", type=int, default=4, help="how many seeds")
    options.add_argument("--first-seed", type=int, default=0)
    options.add_argument("--jobs", type=int, default=150)
    chosen = options.parse_args(argv)
    topology = load(chosen.machine)
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    print(heading(chosen.machine, chosen.jobs, seeds))
    for weight in HOP_WEIGHTS:
        bounds = [best_possible(topology, mixed_jobs(seed, chosen.jobs), weight) for seed in seeds]
        shares, hops = zip(*bounds, strict=True)
        print(row(f"knows all, hop costs {weight:g}", shares, hops))


if __name__ == "__main__":
    main()
