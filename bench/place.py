"""place: how long a policy decides, in process, beside a NetworkX subgraph search.

cold      nothing computed yet: no tables, no remembered answers, no cached subsets
new mask  tables there, a free mask that was not asked about before
warm      a question that was asked before
The search is what a Python user would write: every match of the ring in the complete graph
of the free GPUs (VF2), each scored by the same bandwidth model. It must find the same
bandwidth, or the run stops.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from random import Random

import networkx as nx

from bench.measure import Figure, at_least, at_most, conditions, quantile
from gres_topology import NodeTopology, catalog
from policies import Cluster, NodeState, Placement, Request, bits, symmetry
from policies.bandwidth import RING_EFFICIENCY, eq2, model_for
from policies.mapa import Mapa
from policies.objectives import BALANCED, EFFBW
from policies.solved import solved
from policies.tables import Tables

#: Machine -> ring sizes that NetworkX gets; more would take it minutes.
MACHINES = {
    "dgx1v": (2, 3, 4, 5),
    "dgx2": (2, 3, 4),
    "torus-16": (2, 3, 4),
    "cubemesh-16": (),
}
#: Patterns every machine is asked about; a 72-GPU domain for these sizes only.
PATTERNS = ("ring", "tree", "all-to-all")
DOMAIN, DOMAIN_SIZES = "gb200-nvl72", (1, 2, 8, 24, 36, 72)
MASKS = 200
REPEATS = 5
SEED = 1
#: What a first question may take by the GPUs of the node, and a question asked before.
COLD_MS = {8: 10.0, 16: 50.0, 72: 100.0}
WARM_US = 20.0


def cluster_of(topology: NodeTopology, free: int) -> Cluster:
    """One node with those GPUs free."""
    return Cluster({"n1": NodeState("n1", topology, free)})


def seconds(act: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def cold_s(topology: NodeTopology, k: int, preserve: bool = False, pattern: str = "ring") -> float:
    """One decision with every cache of tables, sets and machines empty."""
    bits.clear_caches()
    symmetry.clear_cache()
    solved.clear()
    fresh = replace(topology)
    policy = Mapa("bench", EFFBW if preserve else BALANCED, known=Tables())
    cluster = cluster_of(fresh, (1 << fresh.gpus) - 1)
    return seconds(lambda: policy.place(Request((k,), pattern=pattern), cluster))


def match_gbps(topology: NodeTopology, k: int, ring: tuple[int, ...]) -> float:
    """Predicted bandwidth of one ring, in its order, by the model that ours uses there."""
    ends = list(zip(ring, ring[1:] + ring[:1], strict=True))[: k if k > 2 else 1]
    if model_for(topology, "ring", k).name == "mapa-dgx1v":
        kinds = [topology.kinds[a][b] for a, b in ends]
        x, y = kinds.count("NV2"), kinds.count("NV1")
        return eq2(x, y, len(ends) - x - y)
    return RING_EFFICIENCY * min(float(topology.bandwidth_gbps[a, b]) for a, b in ends)


def search(topology: NodeTopology, k: int) -> float:
    """The best ring's bandwidth on the empty node, by NetworkX."""
    graph = nx.complete_graph(topology.gpus)
    pattern = nx.cycle_graph(k) if k > 2 else nx.path_graph(k)
    matcher = nx.algorithms.isomorphism.GraphMatcher(graph, pattern)
    best = 0.0
    for match in matcher.subgraph_monomorphisms_iter():
        order = {rank: gpu for gpu, rank in match.items()}
        best = max(best, match_gbps(topology, k, tuple(order[rank] for rank in range(k))))
    return best


def ours(topology: NodeTopology, k: int) -> float:
    """The bandwidth our exact search finds on the empty node."""
    policy = Mapa("bench", EFFBW, known=Tables())
    found = policy.place(Request((k,)), cluster_of(topology, (1 << topology.gpus) - 1))
    assert isinstance(found, Placement)
    return found.effbw_gbps


def warm_figures(name: str, topology: NodeTopology) -> Iterator[Figure]:
    """A question with a new mask, and the same question again, over random masks."""
    rng, policy = Random(SEED), Mapa("bench", BALANCED, known=Tables())
    for k in range(1, topology.gpus // 2 + 1):
        policy.place(Request((k,)), cluster_of(topology, (1 << topology.gpus) - 1))
    new_us, again_us = [], []
    for _ in range(MASKS):
        k = rng.randint(1, topology.gpus // 2)
        free = bits.mask_of(rng.sample(range(topology.gpus), rng.randint(k, topology.gpus)))
        request, cluster = Request((k,)), cluster_of(topology, free)
        for found in (new_us, again_us):
            found.append(1e6 * seconds(lambda r=request, c=cluster: policy.place(r, c)))
    for word, found in (("new_mask", new_us), ("warm", again_us)):
        detail = {"p99_us": round(quantile(found, 0.99), 1), "questions": MASKS, "seed": SEED}
        figure_name, value = f"place.{word}.{name}", quantile(found, 0.5)
        if word == "warm":
            yield at_most(figure_name, value, "us", WARM_US, detail=detail)
        else:
            yield Figure(figure_name, round(value, 1), "us", detail=detail)


def cold_figure(name: str, topology: NodeTopology, pattern: str, sizes: Iterable[int]) -> Figure:
    """The slowest size of one machine and pattern, each the median of some repeats."""
    cold = {
        k: quantile([1e3 * cold_s(topology, k, pattern=pattern) for _ in range(REPEATS)], 0.5)
        for k in sizes
    }
    worst = max(cold, key=lambda k: cold[k])
    detail = {"per_size_ms": {k: round(ms, 2) for k, ms in cold.items()}, **conditions()}
    detail |= {"worst_size": worst, "repeats": REPEATS}
    limit = COLD_MS[topology.gpus]
    return at_most(f"place.cold.{name}.{pattern}", cold[worst], "ms", limit, detail=detail)


def against_networkx(name: str, topology: NodeTopology, sizes: tuple[int, ...]) -> Figure:
    """Cold exact search beside NetworkX: the least speed-up over the sizes."""
    times = {}
    for k in sizes:
        expected, found = search(topology, k), ours(topology, k)
        if abs(expected - found) > 1e-6:
            raise AssertionError(f"{name}, {k} GPUs: NetworkX finds {expected}, we {found} GB/s")
        theirs = seconds(lambda k=k: search(topology, k))
        mine = quantile([cold_s(topology, k, preserve=True) for _ in range(REPEATS)], 0.5)
        times[k] = (mine, theirs)
    # Two GPUs are a handful of matches: whoever has less to set up wins, so it is only told.
    ratios = {k: theirs / mine for k, (mine, theirs) in times.items()}
    largest = max(sizes)
    return at_least(
        f"place.vs_networkx.{name}",
        ratios[largest],
        "times faster",
        1,
        compared_with=f"NetworkX VF2: {1e3 * times[largest][1]:.1f} ms for {largest} GPUs",
        detail={
            "cold_ms": {k: round(1e3 * mine, 2) for k, (mine, _) in times.items()},
            "networkx_ms": {k: round(1e3 * theirs, 2) for k, (_, theirs) in times.items()},
            "ratio": {k: round(ratio, 2) for k, ratio in ratios.items()},
        },
    )


def run() -> Iterator[Figure]:
    """The figures of every machine."""
    for name, sizes in MACHINES.items():
        topology = catalog.load(name)
        for pattern in PATTERNS:
            yield cold_figure(name, topology, pattern, range(1, topology.gpus + 1))
        yield from warm_figures(name, topology)
        if sizes:
            yield against_networkx(name, topology, sizes)
    for pattern in PATTERNS:
        yield cold_figure(DOMAIN, catalog.load(DOMAIN), pattern, DOMAIN_SIZES)
    yield from warm_figures(DOMAIN, catalog.load(DOMAIN))
