"""topo-aware and topo-aware-p: place by utility, or wait for enough of it (SC17, section 4).

Dual recursive bipartitioning chooses the GPUs of a node; the nodes are compared by the utility of
that choice. Slurm decides how many GPUs a job has on how many nodes, algorithm 1 does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Self

from gres_topology import Network
from policies.contract import hint_keys
from policies.contract.bits import gpus_of
from policies.contract.hint_keys import HintKey
from policies.contract.nodes import candidates
from policies.contract.nouns import (
    Candidate,
    CandidatesLater,
    Cluster,
    Placement,
    Request,
    Wait,
)
from policies.contract.policy import LooksAt, Policy, Site
from policies.errors import PolicyError
from policies.scoring.measure import measured
from policies.topo_aware.graph import HOP_WEIGHT, SCALE
from policies.topo_aware.search import Chosen, NodeSearch
from policies.topo_aware.settings import TopoAwareSettings
from policies.topo_aware.solutions import Solutions
from policies.topo_aware.utility import HEAVIEST, UtilityTerms


class TopoAware(Policy):
    """The paper's policy without its minimum utility: it places whenever the job fits."""

    name = "topo-aware"
    hints: tuple[HintKey, ...] = (
        *(hint_keys.SENSITIVE, hint_keys.PROFILE, hint_keys.BATCH),
        *(hint_keys.MEMORY_BANDWIDTH, hint_keys.SINGLE_NODE, hint_keys.ANTI_COLLOCATION),
        *(hint_keys.PACK, hint_keys.SPREAD),
    )
    looks_at = frozenset({LooksAt.RUNNING_JOBS, LooksAt.INTERFERENCE})
    settings = TopoAwareSettings
    section = "topo_aware"
    #: Whether a job waits while the utility is below its minimum.
    postpones = False

    def __init__(self, solutions: Solutions) -> None:
        self._solutions = solutions

    @classmethod
    def build(cls, settings: TopoAwareSettings, site: Site) -> Self:
        """With what the site set and measured."""
        return cls(_shared_solutions(settings, site))

    def place(self, request: Request, cluster: Cluster) -> Placement | Wait:
        """Choose GPUs for one job that fits; wait for its constraints or minimum utility."""
        nodes = candidates(cluster.nodes)
        problem = _against_counts(request)
        need_gbps = float(request.options.get("memory-bandwidth", "0"))
        with self._solutions.index(nodes.table, cluster.jobs) as index:
            search = NodeSearch(self._solutions, request, nodes, index, need_gbps)
            chosen, others = search.nearest(cluster.network)
            if len(chosen) < len(request.gpus_per_node):
                problem = problem or f"no free node has {need_gbps:g} GB/s of memory bandwidth left"
                search = NodeSearch(self._solutions, request, nodes, index)
                chosen, others = search.nearest(cluster.network)
            if len(chosen) > 1:
                chosen = search.on_rails(chosen)
        placement = self._placement(request, cluster, chosen, others)
        if not problem and self.postpones and placement.utility < request.min_utility:
            problem = (
                f"the best free GPUs have a utility of {placement.utility:.2f}"
                f" ({_in_words(placement.terms)}), the job asks for {request.min_utility:.2f}"
            )
        return Wait(problem, instead=placement) if problem else placement

    def _across(
        self,
        request: Request,
        cluster: Cluster,
        network: Network,
        chosen: Sequence[Chosen],
        worst: UtilityTerms,
    ) -> UtilityTerms:
        """The terms of a job of several nodes: eq. 3 over all pairs of its GPUs.

        The least and the most are those of the same counts below one leaf switch, and as far
        apart as this network has it. The other terms are those of the worst node.
        """
        cost = least = most = 0.0
        for name, mask, _ in chosen:
            machine = self._solutions.machine(cluster.nodes[name].topology)
            nearest, farthest = machine.extremes(mask.bit_count())
            cost, least, most = cost + machine.paths(mask), least + nearest, most + farthest
        for one, other in combinations(chosen, 2):
            pairs = one.mask.bit_count() * other.mask.bit_count()
            cost += pairs * HOP_WEIGHT * SCALE * network.hops(one.name, other.name)
            least += pairs * HOP_WEIGHT * SCALE
            most += pairs * HOP_WEIGHT * SCALE * (2 * (network.top + 1) + 1)
        weight = self._solutions.needs(request, max(request.gpus_per_node)).weight
        close = 1.0 - weight / HEAVIEST * min(1.0, max(0.0, (cost - least) / (most - least)))
        settings = self._solutions.settings
        weights = (settings.communication, settings.interference, settings.fragmentation)
        terms = (close, worst.interference, worst.fragmentation)
        total = sum(weight * term for weight, term in zip(weights, terms, strict=True))
        return UtilityTerms(round(total / sum(weights), 9), *terms)

    def _placement(
        self,
        request: Request,
        cluster: Cluster,
        chosen: list[Chosen],
        others: Callable[[], list[Chosen]],
    ) -> Placement:
        if not chosen:
            counts = request.gpus_per_node
            raise PolicyError(
                f"no candidate node has {max(counts)} free GPUs left for this request of"
                f" {'+'.join(map(str, counts))}; the caller must ask with nodes that fit"
            )
        gpus = {name: gpus_of(mask) for name, mask, _ in chosen}
        # A job runs at the pace of its worst node.
        worst = min((terms for _, _, terms in chosen), key=lambda terms: terms.utility)
        if cluster.network is not None and len(chosen) > 1:
            worst = self._across(request, cluster, cluster.network, chosen, worst)
        rest = [(name, mask) for name, mask, _ in chosen[1:]]
        taken = {name for name, _ in rest}

        def candidates() -> list[Candidate]:
            return [
                _candidate([(one.name, one.mask)], rest, one.terms)
                for one in (chosen[0], *others())
                if one.name not in taken
            ]

        reason = f"utility {worst.utility:.2f}: {_in_words(worst.named())}"
        return replace(
            measured(gpus, request, cluster, self.name, reason),
            score=worst.utility,
            utility=worst.utility,
            terms=worst.named(),
            candidates=CandidatesLater(candidates),
        )


def _against_counts(request: Request) -> str:
    """Why the counts that Slurm offers are not what the job allows; empty if they are."""
    counts = request.gpus_per_node
    if request.options.get("single-node") == "yes" and len(counts) > 1:
        return f"single-node: Slurm offers {len(counts)} nodes; ask with --nodes=1"
    if request.options.get("anti-collocation") == "yes" and counts[0] > 1:
        return (
            f"anti-collocation: Slurm offers {counts[0]} GPUs of one node;"
            " ask with --gpus-per-node=1 and --nodes"
        )
    return ""


def _candidate(
    own: list[tuple[str, int]], rest: list[tuple[str, int]], terms: UtilityTerms
) -> Candidate:
    gpus = {name: gpus_of(mask) for name, mask in (*own, *rest)}
    return Candidate(gpus, terms.utility, 0.0, 0.0, 0.0, terms.named())


def _in_words(terms: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in terms.items())


class TopoAwareP(TopoAware):
    """TOPO-AWARE-P: a job waits while the utility is below the job's minimum."""

    name = "topo-aware-p"
    hints = (*TopoAware.hints, hint_keys.MIN_UTILITY)
    postpones = True


#: The one that is in use: what was computed outlives a reload that changes nothing of it.
_in_use: list[Solutions] = []


def _shared_solutions(settings: TopoAwareSettings, site: Site) -> Solutions:
    """One for both policies, so that they share what they compute, as long as both are equal."""
    asked = (settings, site.interference)
    if not _in_use or (_in_use[0].settings, _in_use[0].interference) != asked:
        _in_use[:] = [Solutions(*asked)]
    return _in_use[0]
