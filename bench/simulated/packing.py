"""packing: whole nodes and blocks for the jobs that need them, where all sets of GPUs tie.

72 nodes of eight GPUs behind one NVSwitch each (dgx-h100) in four blocks. Seeded mixes: one job in
twelve of 2 to 18 whole nodes, the others of 1 to 8 GPUs on one node. Three loads. Here it is the
simulator's stock Slurm against `mapa`; `packing-live` asks the same of real slurmd.
PACKING_SEEDS (8), PACKING_LOADS (0.7,0.85,0.95) and PACKING_JOBS (1500) make it another size.
PACKING_BACKFILL=slurm has Slurm's two schedulers as they are by default, in place of EASY backfill.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from bench.measure import Figure
from gres_topology import Network, catalog
from gres_topology.slurm_files.topology_conf import parse
from simulation.core.jobs import SimJob, at_load
from simulation.core.record import Record, SimulatedRun
from simulation.core.slurm_site import SlurmSite
from simulation.models.placing import Simulator
from simulation.models.slurm import SlurmSimulator
from simulation.report.breakdown import moments
from simulation.report.metrics import summary
from simulation.stock import policy_named

NODES, BLOCKS, PER_NODE = 72, 4, 8
MACHINE = "dgx-h100"
#: GPUs of a job of one node -> weight; most ask for a power of two.
SIZES = {1: 30, 2: 18, 3: 3, 4: 20, 5: 2, 6: 3, 7: 2, 8: 22}
#: One job of so many has several nodes; few of them are large.
OF_SEVERAL = 0.08
MOST_NODES = 18
#: Limits over durations: users ask for more than they need.
LIMITS = (1.0, 1.2, 2.0, 3.0, 5.0)
SIDES = ("stock", "mapa")
#: The first part of the time does not count: the nodes are empty then.
WARM_UP = 0.2
#: A job that started so many seconds after its submit, in parts of the mean duration, had room.
AT_ONCE = 0.1


@dataclass(frozen=True)
class Size:
    """How much is run; seeds count from 1, jobs are those of one side, load and seed."""

    seeds: int
    loads: tuple[float, ...]
    jobs: int
    first_seed: int = 1

    @classmethod
    def from_environment(cls, seeds: int, jobs: int) -> Size:
        """What PACKING_* say, these where they say nothing."""
        loads = os.environ.get("PACKING_LOADS", "0.7,0.85,0.95").split(",")
        return cls(
            int(os.environ.get("PACKING_SEEDS", seeds)),
            tuple(map(float, loads)),
            int(os.environ.get("PACKING_JOBS", jobs)),
            int(os.environ.get("PACKING_FIRST_SEED", 1)),
        )

    @property
    def cells(self) -> Iterator[tuple[float, list[int]]]:
        """Each load with the seeds it is run with."""
        for load in self.loads:
            yield load, list(range(self.first_seed, self.first_seed + self.seeds))


def mix(seed: int, count: int, load: float, mean_s: float) -> list[SimJob]:
    """The jobs of one seed at that load; durations vary about that mean."""
    draw = Random(seed)
    jobs, at_s = [], 0.0
    for number in range(1, count + 1):
        at_s += draw.expovariate(1.0)
        if draw.random() < OF_SEVERAL:
            nodes = min(MOST_NODES, int(2 * (MOST_NODES / 2) ** (draw.random() ** 1.5)))
            asked = (PER_NODE,) * nodes
        else:
            asked = tuple(draw.choices([*SIZES], [*SIZES.values()]))
        duration = 0.1 * mean_s + min(5 * mean_s, draw.expovariate(1 / (0.9 * mean_s)))
        jobs.append(
            SimJob(number, asked, duration, at_s, walltime_s=duration * draw.choice(LIMITS))
        )
    return at_load(jobs, NODES * PER_NODE, load)


def node_names(prefix: str = "h", first: int = 1) -> list[str]:
    """The nodes of one side, in the order of their blocks."""
    return [f"{prefix}{number:03}" for number in range(first, first + NODES)]


def topology_conf(names: Sequence[str]) -> str:
    """The four blocks, as Slurm's topology.conf has them."""
    each = NODES // BLOCKS
    lines = [
        f"BlockName=b{at // each + 1} Nodes={','.join(names[at : at + each])}"
        for at in range(0, len(names), each)
    ]
    return "\n".join([*lines, f"BlockSizes={each}"]) + "\n"


@dataclass(frozen=True, slots=True)
class Packed:
    """What one side's run comes to; shares are from 0 to 1, None where there was no such job."""

    #: Jobs that started at once, by class: `small`, `whole` (8 GPUs), `several` (nodes).
    at_once: Mapping[str, list[bool]]
    #: Of the jobs of several nodes, which had one block.
    one_block: list[bool]
    #: GPUs stranded, and of the largest job that could start: means over time, while jobs come.
    stranded: float
    largest: float
    wait_s: float
    bandwidth_share: float | None


def class_of(job: SimJob) -> str:
    """What kind of room a job needs."""
    if len(job.gpus_per_node) > 1:
        return "several"
    return "whole" if job.gpus_per_node[0] == PER_NODE else "small"


def judged(run: SimulatedRun, names: Sequence[str], mean_s: float) -> Packed:
    """The figures of a run on the nodes of these names, simulated or live."""
    nodes = dict.fromkeys(names, catalog.load(MACHINE))
    blocks = parse(topology_conf(names), "packing")
    last_s = max(record.job.submit_s for record in run.records)
    first_s = WARM_UP * last_s
    counted = [record for record in run.records if record.job.submit_s >= first_s]
    at_once: dict[str, list[bool]] = {"small": [], "whole": [], "several": []}
    for record in counted:
        at_once[class_of(record.job)].append(record.waited_s <= AT_ONCE * mean_s)
    several = [record for record in counted if class_of(record.job) == "several"]
    seen = moments(run, nodes, first_s, last_s)
    return Packed(
        at_once,
        [in_one_block(record, blocks) for record in several],
        fmean(moment.stranded for moment in seen),
        fmean(moment.largest for moment in seen),
        fmean(record.waited_s for record in counted),
        summary(run, nodes)["bandwidth_share"],
    )


def in_one_block(record: Record, blocks: Network) -> bool:
    """Whether one block has all nodes of the job."""
    joined = blocks.common(record.placement.gpus)
    return joined is not None and joined.level == 0


def simulated(side: str, jobs: Sequence[SimJob]) -> SimulatedRun:
    """One side in the simulator, with EASY backfill by the limits, or under Slurm's defaults."""
    names = node_names()
    known = None if side == "stock" else parse(topology_conf(names), "packing")
    nodes = dict.fromkeys(names, catalog.load(MACHINE))
    policy = policy_named(side)
    if os.environ.get("PACKING_BACKFILL") != "slurm":
        return Simulator(nodes, policy, easy=True, network=known).run(jobs)
    # Slurm's limits are whole minutes.
    minutes = [math.ceil((job.walltime_s or job.duration_s) / 60) for job in jobs]
    whole = [replace(job, walltime_s=60.0 * m) for job, m in zip(jobs, minutes, strict=True)]
    return SlurmSimulator(nodes, policy, SlurmSite(), network=known).run(whole)


def share(flags: Sequence[bool]) -> float:
    """Of how many it is true, from 0 to 1."""
    return sum(flags) / len(flags) if flags else 0.0


def _pooled(runs: Sequence[Packed], *classes: str) -> float:
    return share([one for run in runs for kind in classes for one in run.at_once[kind]])


#: Figure -> (its value over the runs of one side and load, its unit, whether more is better; None:
#: not to be worse).
FIGURES: dict[str, tuple[Callable[[Sequence[Packed]], float], str, bool | None]] = {
    "at_once": (
        lambda runs: _pooled(runs, "whole", "several"),
        "share of 8-GPU and multi-node jobs",
        True,
    ),
    "whole_at_once": (lambda runs: _pooled(runs, "whole"), "share of 8-GPU jobs", True),
    "several_at_once": (lambda runs: _pooled(runs, "several"), "share of multi-node jobs", True),
    "stranded": (
        lambda runs: fmean(run.stranded for run in runs) / (NODES * PER_NODE),
        "share of GPU time",
        False,
    ),
    "largest": (lambda runs: fmean(run.largest for run in runs), "GPUs", True),
    "one_block": (
        lambda runs: share([one for run in runs for one in run.one_block]),
        "share of multi-node jobs",
        True,
    ),
    "bandwidth": (
        lambda runs: fmean(run.bandwidth_share or 0.0 for run in runs),
        "share of the ideal",
        None,
    ),
}


def figures(name: str, load: float, runs: Mapping[str, Sequence[Packed]]) -> Iterator[Figure]:
    """Ours beside stock's at one load, over all seeds; met where ours is the better one."""
    for what, (of, unit, more) in FIGURES.items():
        ours, stock = of(runs["mapa"]), of(runs["stock"])
        is_met = ours >= stock if more is None else (ours > stock if more else ours < stock)
        word = "not less than" if more is None else ("more than" if more else "less than")
        yield Figure(
            f"{name}.{100 * load:.0f}.{what}",
            round(ours, 4),
            unit,
            bar=f"{word} stock's",
            ok=bool(is_met),
            compared_with=f"stock Slurm: {stock:.4f}",
            detail={side: [round(of([run]), 4) for run in some] for side, some in runs.items()},
        )
    small = {side: _pooled(some, "small") for side, some in runs.items()}
    wait_s = {side: round(fmean(run.wait_s for run in some), 2) for side, some in runs.items()}
    yield Figure(
        f"{name}.{100 * load:.0f}.small_at_once",
        round(small["mapa"], 4),
        "share of jobs of 1 to 7 GPUs",
        compared_with=f"stock Slurm: {small['stock']:.4f}",
        detail={"mean_wait_s": wait_s, "seeds": len(runs["mapa"])},
    )


MEAN_S = 600.0


def run() -> Iterator[Figure]:
    """In the simulator."""
    size = Size.from_environment(seeds=8, jobs=1500)
    for load, seeds in size.cells:
        runs: dict[str, list[Packed]] = {side: [] for side in SIDES}
        for seed in seeds:
            jobs = mix(seed, size.jobs, load, MEAN_S)
            for side in SIDES:
                runs[side].append(judged(simulated(side, jobs), node_names(), MEAN_S))
        yield from figures("packing", load, runs)
