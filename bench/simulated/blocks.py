"""blocks: NVLink domains under topology/block, stock's nodes against ours within its promises.

Four domains of eighteen nodes of four GPUs (NVL72). Seeded mixes: three of four jobs are of 1 to 4
GPUs on one node, the others of 2 to 18 whole nodes, which Slurm starts in one block or not at all.
BLOCKS_SEEDS (16), BLOCKS_LOADS (0.4,0.55,0.7,0.85) and BLOCKS_JOBS (800) make it another size.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from random import Random
from statistics import fmean, stdev

from bench.measure import Figure
from gres_topology import Network, catalog
from gres_topology.slurm_files.topology_conf import parse
from policies import Cluster, Placement, Policy, Request, Wait
from policies.contract.nodes import Candidates, candidates
from policies.registry import registry
from simulation.core.jobs import SimJob, at_load
from simulation.core.record import SimulatedRun
from simulation.models.placing import Postponing, Simulator
from simulation.stock import Stock
from slurm_plugin.decide import promises

BLOCKS, IN_BLOCK, PER_NODE = 4, 18, 4
MACHINE = "gb200-tray"
SIDES = ("stock", "ours")
#: Moments at which domains are counted, and the part of the time that does not count.
MOMENTS, WARM_UP = 400, 0.2
MEAN_S = 600.0
#: A job that started so many seconds after its submit, in parts of the mean duration, had room.
AT_ONCE = 0.1
#: A job that found no block is asked about again after so many seconds, and when a job ends.
AGAIN_S = 30.0


def node_names() -> list[str]:
    """The nodes, in the order of their blocks."""
    return [f"gb{number:02}" for number in range(1, BLOCKS * IN_BLOCK + 1)]


def topology_conf(names: Sequence[str]) -> str:
    """The domains as Slurm's topology.conf has them."""
    lines = [
        f"BlockName=b{at // IN_BLOCK + 1} Nodes={','.join(names[at : at + IN_BLOCK])}"
        for at in range(0, len(names), IN_BLOCK)
    ]
    return "\n".join([*lines, f"BlockSizes={IN_BLOCK}"]) + "\n"


def network(names: Sequence[str]) -> Network:
    """The same as it is read."""
    return parse(topology_conf(names), "bench")


class StockInBlocks(Policy):
    """A model of eval_nodes_block of Slurm 24.11 for jobs within one base block.

    The block with the fewest nodes that suffice, of equal ones the last; there the first nodes, and
    on them stock Slurm's GPUs.
    """

    name = "stock"

    def __init__(self) -> None:
        self._gpus = Stock()

    def nodes(self, request: Request, cluster: Cluster) -> Candidates | None:
        """The nodes, None where the job has to wait."""
        assert cluster.network is not None
        among, count = candidates(cluster.nodes), len(request.gpus_per_node)
        fit = [n for n, s in among.items() if s.free.bit_count() >= request.gpus_per_node[0]]
        best: list[str] = []
        for block in cluster.network.domains:
            inside = sorted(block.nodes.intersection(fit))
            if len(inside) >= count and (not best or len(inside) <= len(best)):
                best = inside
        return among.without(among.keys() - set(best[:count])) if best else None

    def place(self, request: Request, cluster: Cluster) -> Placement | Wait:
        """The nodes with stock Slurm's GPUs."""
        nodes = self.nodes(request, cluster)
        if nodes is None:
            return Wait("no block has room")
        return self._gpus.place(request, replace(cluster, nodes=nodes))


class Ours(Policy):
    """mapa within what Slurm's own choice of nodes keeps."""

    name = "ours"

    def __init__(self) -> None:
        self._stock, self._policy = StockInBlocks(), registry.get("mapa")

    def place(self, request: Request, cluster: Cluster) -> Placement | Wait:
        """As the engine answers a question that lists Slurm's own nodes."""
        own = self._stock.nodes(request, cluster)
        if own is None:
            return Wait("no block has room")
        told = replace(cluster, nodes=candidates(cluster.nodes))
        return promises.place(self._policy, request, told, own.among, 0)


def mix(seed: int, count: int, load: float, mean_s: float = MEAN_S) -> list[SimJob]:
    """The jobs of one seed at that load."""
    draw, jobs, at_s = Random(seed), [], 0.0
    for number in range(1, count + 1):
        at_s += draw.expovariate(1.0)
        asked = (draw.choices((1, 2, 3, 4), (35, 25, 5, 35))[0],)
        if draw.random() < 0.25:
            nodes = draw.choices((2, 3, 4, 6, 8, 12, 18), (30, 8, 25, 8, 15, 7, 7))[0]
            asked = (PER_NODE,) * nodes
        duration = 0.1 * mean_s + min(5 * mean_s, draw.expovariate(1 / (0.9 * mean_s)))
        jobs.append(SimJob(number, asked, duration, at_s))
    return at_load(jobs, BLOCKS * IN_BLOCK * PER_NODE, load)


@dataclass(frozen=True, slots=True)
class Kept:
    """What one side's run comes to."""

    #: Domains of which nobody uses any GPU: mean over the time in which jobs come.
    whole: float
    #: Nodes of the largest job of whole nodes that one domain had room for: the same.
    largest: float
    #: Of the jobs of 8 nodes and more, and of all of several nodes, which started at once.
    large_at_once: float
    several_at_once: float
    #: Mean wait of the jobs of several nodes, and of those of one, in seconds.
    several_wait_s: float
    one_wait_s: float


def simulated(side: str, jobs: Sequence[SimJob]) -> SimulatedRun:
    """One side in the simulator."""
    names = node_names()
    nodes = dict.fromkeys(names, catalog.load(MACHINE))
    policy = StockInBlocks() if side == "stock" else Ours()
    endless = Postponing(max_postponements=10**9, max_wait_s=1e12, step_s=AGAIN_S)
    return Simulator(nodes, policy, bounds=endless, network=network(names)).run(jobs)


def judged(run: SimulatedRun, names: Sequence[str] = (), mean_s: float = MEAN_S) -> Kept:
    """The figures of a run on the nodes of these names, simulated or live."""
    names = names or node_names()
    last_s = max(record.job.submit_s for record in run.records)
    first_s = WARM_UP * last_s
    free = [
        free_by_block(run, names, first_s + (at + 0.5) * (last_s - first_s) / MOMENTS)
        for at in range(MOMENTS)
    ]
    counted = [record for record in run.records if record.job.submit_s >= first_s]
    waits = {
        size: [r.waited_s for r in counted if is_in(len(r.job.gpus_per_node))]
        for size, is_in in (
            ("one", lambda n: n == 1),
            ("several", lambda n: n > 1),
            ("large", lambda n: n >= 8),
        )
    }
    return Kept(
        fmean(sum(room == IN_BLOCK for room in now) for now in free),
        fmean(max(now) for now in free),
        fmean(wait_s <= AT_ONCE * mean_s for wait_s in waits["large"]),
        fmean(wait_s <= AT_ONCE * mean_s for wait_s in waits["several"]),
        fmean(waits["several"]),
        fmean(waits["one"]),
    )


def free_by_block(run: SimulatedRun, names: Sequence[str], now_s: float) -> list[int]:
    """Nodes of each block that nobody uses any GPU of, at a moment."""
    used = {
        name
        for record in run.records
        if record.start_s <= now_s < record.end_s
        for name in record.placement.gpus
    }
    return [
        sum(name not in used for name in names[at : at + IN_BLOCK])
        for at in range(0, len(names), IN_BLOCK)
    ]


#: Figure -> (its unit, whether more is better).
FIGURES = {
    "whole": ("domains nobody uses, of 4", True),
    "largest": ("nodes", True),
    "large_at_once": ("share of jobs of 8 to 18 nodes", True),
    "several_at_once": ("share of jobs of several nodes", True),
    "several_wait_s": ("s", False),
    "one_wait_s": ("s", False),
}


def run() -> Iterator[Figure]:
    """Both sides at each load, over all seeds: the same jobs, so that differences are by seed."""
    seeds = range(1, 1 + int(os.environ.get("BLOCKS_SEEDS", "16")))
    count = int(os.environ.get("BLOCKS_JOBS", "800"))
    for load in map(float, os.environ.get("BLOCKS_LOADS", "0.4,0.55,0.7,0.85").split(",")):
        mixes = [mix(seed, count, load) for seed in seeds]
        runs = {side: [judged(simulated(side, jobs)) for jobs in mixes] for side in SIDES}
        yield from figures(load, runs)


def figures(
    load: float, runs: Mapping[str, Sequence[Kept]], name: str = "blocks"
) -> Iterator[Figure]:
    """Met where ours is not worse than stock's by more than the noise between the seeds."""
    for what, (unit, is_more) in FIGURES.items():
        of = {side: [getattr(one, what) for one in some] for side, some in runs.items()}
        better = [a - b if is_more else b - a for a, b in zip(of["ours"], of["stock"], strict=True)]
        noise = stdev(better) / sqrt(len(better)) if len(better) > 1 else 0.0
        yield Figure(
            f"{name}.{100 * load:.0f}.{what}",
            round(fmean(of["ours"]), 3),
            unit,
            bar="not worse than stock's by more than the standard error",
            # One seed tells nothing of the noise.
            ok=fmean(better) >= -noise if len(better) > 1 else None,
            compared_with=f"stock Slurm: {fmean(of['stock']):.3f}",
            detail={
                "better_by": round(fmean(better), 3),
                "standard_error": round(noise, 3),
                **{side: [round(one, 3) for one in some] for side, some in of.items()},
            },
        )
