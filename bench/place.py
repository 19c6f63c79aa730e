"""place: how long a policy decides, in process, beside general subgraph searches.

cold      nothing computed yet: no tables, no remembered answers, no cached subsets
new mask  tables there, a free mask that was not asked about before
warm      a question that was asked before
The searches try every match of the ring in the complete graph of the free GPUs (VF2 of NetworkX,
and of rustworkx where it is installed), scored by the same bandwidth model. They must find the
same bandwidth; one that exceeds a minute is left, and larger rings are not tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from random import Random

import networkx as nx

try:
    import rustworkx
except ImportError:  # the extra `bench`: a search in Rust to compare with
    rustworkx = None

from bench.measure import Figure, at_least, at_most, conditions, quantile
from gres_topology import NodeTopology, catalog
from policies import Cluster, NodeState, Placement, Request
from policies.bandwidth.cables import cables_mbps, narrowest_cut
from policies.bandwidth.model import eq2, model_for
from policies.contract import bits
from policies.mapa import Mapa, MapaPreserve
from policies.matching import symmetry
from policies.matching.links import RING_EFFICIENCY, link_mbps
from policies.matching.solved import solved
from policies.scoring.tables import Tables

MACHINES = ("dgx1v", "dgx2", "torus-16", "cubemesh-16")
#: The machines that the searches get, and how long one search may take.
SEARCHED, SEARCH_S = ("dgx1v", "dgx2", "torus-16"), 60.0
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
    policy = (MapaPreserve if preserve else Mapa)(Tables())
    cluster = cluster_of(fresh, (1 << fresh.gpus) - 1)
    return seconds(lambda: policy.place(Request((k,), pattern=pattern), cluster))


def scoring(topology: NodeTopology, k: int) -> Callable[[tuple[int, ...]], float]:
    """One ring's predicted bandwidth (GB/s), in its order, by the model that ours uses there."""
    hops = k if k > 2 else 1
    links, kinds = link_mbps(topology).tolist(), topology.kinds
    model = model_for(topology, "ring", k).name
    mesh = cables_mbps(topology)
    cable = int(mesh[mesh > 0].min()) if model == "cables" else 0
    cuts = (
        dict(
            zip(
                bits.subsets(topology.gpus, k).tolist(),
                narrowest_cut(mesh, k).tolist(),
                strict=True,
            )
        )
        if cable
        else {}
    )

    def gbps(ring: tuple[int, ...]) -> float:
        ends = list(zip(ring, ring[1:] + ring[:1], strict=True))[:hops]
        if model == "mapa-dgx1v":
            used = [kinds[a][b] for a, b in ends]
            x, y = used.count("NV2"), used.count("NV1")
            return eq2(x, y, hops - x - y)
        mbps = min(links[a][b] for a, b in ends)
        if cable and mbps >= cable:
            mbps = max(mbps, cuts[bits.mask_of(ring)])
        return float(RING_EFFICIENCY * mbps / 1000)

    return gbps


#: A ring's matches in a complete graph, as {rank: GPU}.
Matches = Callable[[int, int], Iterator[Mapping[int, int]]]


def networkx_matches(gpus: int, k: int) -> Iterator[Mapping[int, int]]:
    """Every match by NetworkX's VF2."""
    pattern = nx.cycle_graph(k) if k > 2 else nx.path_graph(k)
    matcher = nx.algorithms.isomorphism.GraphMatcher(nx.complete_graph(gpus), pattern)
    for match in matcher.subgraph_monomorphisms_iter():
        yield {rank: gpu for gpu, rank in match.items()}


def rustworkx_matches(gpus: int, k: int) -> Iterator[Mapping[int, int]]:
    """Every match by rustworkx's VF2, in Rust."""
    generators = rustworkx.generators
    pattern = generators.cycle_graph(k) if k > 2 else generators.path_graph(k)
    graph = generators.complete_graph(gpus)
    mappings = rustworkx.vf2_mapping(graph, pattern, subgraph=True, induced=False)
    for match in mappings:
        yield {rank: gpu for gpu, rank in match.items()}


def searches() -> dict[str, Matches]:
    """The libraries that are installed."""
    libraries: dict[str, Matches] = {"networkx": networkx_matches}
    if rustworkx is not None:
        libraries["rustworkx"] = rustworkx_matches
    return libraries


def search(
    matches: Matches, topology: NodeTopology, k: int, limit_s: float = SEARCH_S
) -> tuple[float | None, float]:
    """The best ring's bandwidth on the empty node, and the seconds that took.

    None in place of the bandwidth where the limit was reached first.
    """
    gbps = scoring(topology, k)
    began, best = time.perf_counter(), 0.0
    for count, match in enumerate(matches(topology.gpus, k)):
        best = max(best, gbps(tuple(match[rank] for rank in range(k))))
        if count % 1024 == 0 and time.perf_counter() - began > limit_s:
            return None, time.perf_counter() - began
    return best, time.perf_counter() - began


def ours(topology: NodeTopology, k: int) -> float:
    """The bandwidth our exact search finds on the empty node."""
    policy = MapaPreserve(Tables())
    placement = policy.place(Request((k,)), cluster_of(topology, (1 << topology.gpus) - 1))
    assert isinstance(placement, Placement)
    return placement.effbw_gbps


def warm_figures(name: str, topology: NodeTopology) -> Iterator[Figure]:
    """A question with a new mask, and the same question again, over random masks."""
    rng, policy = Random(SEED), Mapa(Tables())
    for k in range(1, topology.gpus // 2 + 1):
        policy.place(Request((k,)), cluster_of(topology, (1 << topology.gpus) - 1))
    new_us, again_us = [], []
    for _ in range(MASKS):
        k = rng.randint(1, topology.gpus // 2)
        free = bits.mask_of(rng.sample(range(topology.gpus), rng.randint(k, topology.gpus)))
        request, cluster = Request((k,)), cluster_of(topology, free)
        for times_us in (new_us, again_us):
            times_us.append(1e6 * seconds(lambda r=request, c=cluster: policy.place(r, c)))
    for word, times_us in (("new_mask", new_us), ("warm", again_us)):
        detail = {"p99_us": round(quantile(times_us, 0.99), 1), "questions": MASKS, "seed": SEED}
        figure_name, value = f"place.{word}.{name}", quantile(times_us, 0.5)
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


def against(library: str, matches: Matches, name: str, topology: NodeTopology) -> Figure:
    """Cold exact search beside a library's: the speed-up at the largest ring it does in time."""
    mine: dict[int, float] = {}
    theirs: dict[int, float] = {}
    beyond: int | None = None
    for k in range(2, topology.gpus + 1):
        expected, took_s = search(matches, topology, k, SEARCH_S)
        if expected is None:
            beyond = k
            break
        gbps = ours(topology, k)
        if abs(expected - gbps) > 1e-6:
            raise AssertionError(f"{name}, {k} GPUs: {library} finds {expected}, we {gbps} GB/s")
        theirs[k] = took_s
        mine[k] = quantile([cold_s(topology, k, preserve=True) for _ in range(REPEATS)], 0.5)
    largest = max(theirs)
    left = f"; {beyond} GPUs exceed {SEARCH_S:g} s" if beyond else ""
    return at_least(
        f"place.vs_{library}.{name}",
        theirs[largest] / mine[largest],
        "times faster",
        1,
        compared_with=f"{library} VF2: {1e3 * theirs[largest]:.1f} ms for {largest} GPUs{left}",
        detail={
            "cold_ms": {k: round(1e3 * s, 2) for k, s in mine.items()},
            f"{library}_ms": {k: round(1e3 * s, 2) for k, s in theirs.items()},
            "ratio": {k: round(theirs[k] / mine[k], 2) for k in mine},
            **conditions(),
        },
    )


def run() -> Iterator[Figure]:
    """The figures of every machine; the searches, which take minutes, last."""
    for name in MACHINES:
        topology = catalog.load(name)
        for pattern in PATTERNS:
            yield cold_figure(name, topology, pattern, range(1, topology.gpus + 1))
        yield from warm_figures(name, topology)
    for pattern in PATTERNS:
        yield cold_figure(DOMAIN, catalog.load(DOMAIN), pattern, DOMAIN_SIZES)
    yield from warm_figures(DOMAIN, catalog.load(DOMAIN))
    for library, matches in searches().items():
        for name in SEARCHED:
            yield against(library, matches, name, catalog.load(name))
