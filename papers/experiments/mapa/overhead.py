"""mapa-overhead: section 5.4, what one decision of Preserve costs by job and machine size."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from gres_topology import NodeTopology
from gres_topology.catalog import load as machine
from papers.experiments import Result
from policies import Cluster, NodeState, Request
from policies.contract import bits
from policies.mapa import MapaPreserve
from policies.matching import symmetry
from policies.matching.solved import solved
from policies.scoring.tables import Tables
from simulation.core.steps import each

#: Figure 19: hardware graphs of 6, 8 and 16 GPUs.
MACHINES = ("summit", "dgx1v", "torus-16", "cubemesh-16")
REPEATS = 5


def decision_s(topology: NodeTopology, gpus: int) -> tuple[float, float]:
    """Seconds of a ring's first decision on the idle node with nothing computed, and again."""
    bits.clear_caches()
    symmetry.clear_cache()
    solved.clear()
    policy = MapaPreserve(Tables())
    full = (1 << topology.gpus) - 1
    cluster = Cluster({"n": NodeState("n", replace(topology), full)})
    spent = []
    for _ in range(2):
        began = time.perf_counter()
        policy.place(Request((gpus,)), cluster)
        spent.append(time.perf_counter() - began)
    return spent[0], spent[1]


def run(seeds: Sequence[int], machines: Sequence[str] = MACHINES, repeats: int = REPEATS) -> Result:
    """The experiment; nothing is drawn, so seeds change nothing."""
    measured: dict[str, dict[str, float | None]] = {}
    for name in each(machines):
        topology = machine(name)
        row: dict[str, float | None] = {}
        for gpus in each(range(2, topology.gpus + 1)):
            first, again = zip(*(decision_s(topology, gpus) for _ in range(repeats)), strict=True)
            row[f"gpus_{gpus:02}_first_s"] = median(first)
            row[f"gpus_{gpus:02}_again_s"] = median(again)
        measured[f"mapa-preserve on {name}"] = row
    return Result("mapa-overhead", (), measured, {}, _NOTES)


_NOTES = (
    "Figure 19 has no numbers: the text says milliseconds, and more for jobs of nine GPUs and above"
    " on 16-GPU machines.",
    "One decision of mapa-preserve for a ring on the idle node, as in the paper: `first` with"
    " nothing computed yet (every set of that size is scored), `again` with the answer remembered;"
    f" medians of {REPEATS}. Times depend on this machine and on what else it does.",
    "Above five GPUs eq. 2 does not hold and the link-agnostic model scores the rings; the paper"
    " extrapolates eq. 2.",
)
