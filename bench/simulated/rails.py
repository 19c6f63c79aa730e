"""rails: what jobs of several nodes send over the spine of a rail-optimised network.

36 nodes of eight GPUs and eight rails (dgx-h100). Seeded mixes: a third of the jobs take 1 to 4
GPUs on each of 2 to 8 nodes, the others 1 to 8 GPUs on one node. Three loads. Stock Slurm (the
simulator's model) against `mapa`, and `mapa` that knows no rails beside them. Counted is an
all-reduce of each job of several nodes, by `policies.scoring.rails`: the part of the bytes between
nodes that crosses the spine, as a ring and as trees.
RAILS_SEEDS (4), RAILS_LOADS (0.7,0.85,0.95) and RAILS_JOBS (800) make it another size, and
RAILS_POLICY=topo-aware has another policy in the place of `mapa`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from bench.measure import Figure
from gres_topology import NodeTopology, catalog
from policies.scoring.rails import Spine, spine_bytes
from simulation.core.jobs import SimJob, at_load
from simulation.core.record import SimulatedRun
from simulation.models.placing import Simulator
from simulation.stock import policy_named

NODES, PER_NODE, MACHINE = 36, 8, "dgx-h100"
#: GPUs of a job of one node, and on each node of a job of several, -> weight.
ALONE = {1: 30, 2: 18, 3: 3, 4: 20, 5: 2, 6: 3, 7: 2, 8: 22}
EACH = {1: 1, 2: 2, 4: 3}
OF_SEVERAL, MOST_NODES = 1 / 3, 8
#: The first part of the jobs does not count: the nodes are empty then.
WARM_UP = 0.2
MEAN_S = 600.0
#: What is run -> the policy, and whether it knows the rails.
SIDES = {"stock": ("stock", True), "mapa": ("mapa", True), "blind": ("mapa", False)}


def mix(seed: int, count: int, load: float) -> list[SimJob]:
    """The jobs of one seed at that load."""
    draw = Random(seed)
    jobs, at_s = [], 0.0
    for number in range(1, count + 1):
        at_s += draw.expovariate(1.0)
        if draw.random() < OF_SEVERAL:
            each = draw.choices([*EACH], [*EACH.values()])[0]
            asked = (each,) * draw.randint(2, MOST_NODES)
        else:
            asked = tuple(draw.choices([*ALONE], [*ALONE.values()]))
        duration = 0.1 * MEAN_S + min(5 * MEAN_S, draw.expovariate(1 / (0.9 * MEAN_S)))
        jobs.append(SimJob(number, asked, duration, at_s, walltime_s=2 * duration))
    return at_load(jobs, NODES * PER_NODE, load)


def crossing(run: SimulatedRun, topology: NodeTopology) -> list[Spine]:
    """Of each job of several nodes what it sends; nodes in the order of their names."""
    last_s = max(record.job.submit_s for record in run.records)
    return [
        spine_bytes(
            [
                tuple(topology.rails[gpu] for gpu in gpus)
                for _, gpus in sorted(record.placement.gpus.items())
            ]
        )
        for record in run.records
        if len(record.placement.gpus) > 1 and record.job.submit_s >= WARM_UP * last_s
    ]


def simulated(side: str, jobs: Sequence[SimJob]) -> list[Spine]:
    """What the jobs of several nodes send on one side."""
    policy, knows_rails = SIDES[side]
    if side != "stock":
        policy = os.environ.get("RAILS_POLICY", policy)
    topology = catalog.load(MACHINE)
    seen = topology if knows_rails else replace(topology, nics=())
    nodes = dict.fromkeys((f"h{number:02}" for number in range(1, NODES + 1)), seen)
    run = Simulator(nodes, policy_named(policy), easy=True).run(jobs)
    return crossing(run, topology)


def share(found: Sequence[Spine], kind: str) -> float:
    """The part of the bytes between nodes that crosses the spine, over all jobs; 0 to 1."""
    total = sum(float(getattr(one, f"{kind}_total")) for one in found)
    return sum(float(getattr(one, kind)) for one in found) / total if total else 0.0


def run() -> Iterator[Figure]:
    """In the simulator."""
    seeds = int(os.environ.get("RAILS_SEEDS", 4))
    count = int(os.environ.get("RAILS_JOBS", 800))
    for load in map(float, os.environ.get("RAILS_LOADS", "0.7,0.85,0.95").split(",")):
        runs: dict[str, list[list[Spine]]] = {side: [] for side in SIDES}
        for seed in range(1, seeds + 1):
            jobs = mix(seed, count, load)
            for side in SIDES:
                runs[side].append(simulated(side, jobs))
        pooled = {side: [one for found in some for one in found] for side, some in runs.items()}
        for kind in ("ring", "tree"):
            shares = {side: share(some, kind) for side, some in pooled.items()}
            by_seed = {
                side: [round(share(found, kind), 4) for found in some]
                for side, some in runs.items()
            }
            yield Figure(
                f"rails.{100 * load:.0f}.{kind}",
                round(shares["mapa"], 4),
                "share of the bytes between nodes that crosses the spine",
                bar="less than stock's",
                ok=shares["mapa"] < shares["stock"],
                compared_with=f"stock Slurm: {shares['stock']:.4f};"
                f" ours without rails: {shares['blind']:.4f}",
                detail={"jobs": len(pooled["mapa"]), **by_seed},
            )
