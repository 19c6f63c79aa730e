"""sc17-graphs: what a job's own communication graph is worth to its placement (section 4.1.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean

from gres_topology import NodeTopology
from gres_topology.catalog import load as machine
from papers.experiments import Result
from papers.experiments.experiment import averaged
from papers.experiments.sc17 import MACHINE
from papers.experiments.sc17.job_graph import (
    GraphBipartition,
    GraphScale,
    JobGraph,
    from_edges,
    from_pattern,
)
from policies import Cluster, NodeState, Placement, Request
from policies.contract.bits import gpus_of, mask_of
from policies.contract.interference import Interference, Kind
from policies.registry import registry
from policies.topo_aware.machine import MachineGraph
from policies.topo_aware.settings import TopoAwareSettings
from policies.topo_aware.utility import HEAVIEST, JobNeeds, SetScorer
from simulation.core.steps import each

#: The paper's machine, and one whose GPUs have links of two widths.
MACHINES = (MACHINE, "dgx1v")
#: Tasks of every job; draws of a node's free GPUs per seed.
TASKS, STATES = 4, 30
#: Who places: by the job's graph, as if it were complete, by the pattern, by lowest ids.
GIVEN, OTHERS = "topo-aware, job graph", ("topo-aware", "mapa", "first-fit")
#: Graphs that `mapa` has as patterns.
PATTERNS = ("all-to-all", "ring", "chain", "star", "tree")


def graphs(draw: Random) -> list[JobGraph]:
    """The patterns; two pairs that talk much and to each other little; and drawn weights."""
    pairs = {(a, b): 1.0 for a in range(TASKS) for b in range(a)}
    heavy = pairs | {(2, 0): 4.0, (3, 1): 4.0}
    drawn = {pair: float(draw.randint(0, HEAVIEST)) for pair in pairs} | {(1, 0): float(HEAVIEST)}
    return [
        *(from_pattern(name, TASKS) for name in PATTERNS),
        from_edges("two pairs", TASKS, heavy),
        from_edges("drawn weights", TASKS, drawn),
    ]


def states(topology: NodeTopology, draw: Random, count: int) -> list[int]:
    """Distinct masks of free GPUs with room for a job, each number of them as likely."""
    masks: dict[int, None] = {}
    for _ in range(count):
        free = draw.randint(TASKS, topology.gpus)
        masks[mask_of(draw.sample(range(topology.gpus), free))] = None
    return list(masks)


def placed(policy: str, topology: NodeTopology, free: int, graph: JobGraph) -> dict[int, int]:
    """Task -> GPU as a policy of the registry has it, task i on the i-th GPU of its order."""
    node = NodeState("n", topology, free)
    pattern = graph.name if graph.name in PATTERNS else "all-to-all"
    request = Request((TASKS,), pattern=pattern)
    answer = registry.get(policy).place(request, Cluster({"n": node}))
    if not isinstance(answer, Placement):
        raise TypeError(f"{policy} waits without a minimum utility")
    return dict(enumerate(answer.gpus["n"]))


def measure(
    topology: NodeTopology, graph: JobGraph, frees: Sequence[int]
) -> dict[str, dict[str, float]]:
    """By policy: eq. 3 over the least there is, the share at it, utility below the best.

    Means over the states.
    """
    node = MachineGraph(topology)
    by_policy: dict[str, list[tuple[float, float]]] = {}
    for free in frees:
        needs = JobNeeds(TASKS, Kind("", 0, TASKS), HEAVIEST)
        scale = SetScorer(node, free, (), needs, TopoAwareSettings(), Interference({}))
        by_graph = GraphScale(scale, graph)
        utility, least = by_graph.best(gpus_of(free))
        answers = {name: placed(name, topology, free, graph) for name in OTHERS}
        answers[GIVEN] = GraphBipartition(by_graph).solve()
        for name, at in answers.items():
            gpus = [at[task] for task in range(TASKS)]
            over = graph.cost(gpus, node.distance) / least
            by_policy.setdefault(name, []).append((over, utility - by_graph.utility(at)))
    return {
        name: {
            "paths_over_least": fmean(over for over, _ in rows),
            "at_least_paths": fmean(over < 1 + 1e-9 for over, _ in rows),
            "utility_below_best": fmean(below for _, below in rows),
        }
        for name, rows in by_policy.items()
    }


def run(seeds: Sequence[int], count: int = STATES) -> Result:
    """The experiment; `count` draws of each machine's free GPUs per seed."""
    rows: dict[str, list[dict[str, float]]] = {}
    for seed in each(seeds):
        for name in each(MACHINES):
            draw, topology = Random(seed), machine(name)
            frees = states(topology, draw, count)
            one: dict[str, dict[str, float]] = {}
            for graph in graphs(draw):
                for policy, figures in measure(topology, graph, frees).items():
                    named = {f"{graph.name} {metric}": v for metric, v in figures.items()}
                    one.setdefault(f"{policy} on {name}", {}).update(named)
            for row, figures in one.items():
                rows.setdefault(row, []).append(figures)
    measured: Mapping[str, Mapping[str, float | None]] = averaged(rows)
    return Result("sc17-graphs", tuple(seeds), measured, {}, _NOTES)


_NOTES = (
    "A job of four GPUs alone on a node with some GPUs free, drawn; no neighbours."
    " paths_over_least: eq. 3 with the job graph's weights over the least of all mappings onto the"
    " free GPUs; at_least_paths: how often it is that; utility_below_best: by how much the utility"
    " is below the highest.",
    "The paper prints nothing of graphs that are not complete: section 5.1 gives all edges of a job"
    " one weight. `topo-aware` in the engine does so, too, as Slurm does not know a job's edges,"
    " and its tasks take the GPUs by their ids. `topo-aware, job graph` maps task by task onto the"
    " same machine graph and runs here alone.",
    "`mapa` is told the pattern and knows no weights; for graphs that are no pattern it is told"
    " all-to-all. It minimises no paths, so its figures here are by another's measure.",
    "Weights are 4, as for the smallest batches; `two pairs`: 4 within the pairs 0-2 and 1-3, else"
    " 1; `drawn weights`: whole numbers from 0 to 4 for each seed.",
)
