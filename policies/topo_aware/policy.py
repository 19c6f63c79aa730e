"""topo-aware and topo-aware-p: place by utility, or wait for enough of it (SC17, section 4).

Dual recursive bipartitioning chooses the GPUs of a node; the nodes are compared by the utility of
that choice. Slurm decides how many GPUs a job has on how many nodes, algorithm 1 does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple, Self

from gres_topology import Network
from policies.contract import hint_keys
from policies.contract.bits import gpus_of
from policies.contract.hint_keys import HintKey
from policies.contract.interference import kind_of_request, weight_of
from policies.contract.nodes import InDomain, in_lowest_domain
from policies.contract.nouns import Candidate, Cluster, Placement, Request, Wait
from policies.contract.policy import LooksAt, Policy, Site
from policies.errors import PolicyError
from policies.scoring.measure import measured
from policies.topo_aware.graph import HOP_WEIGHT, SCALE
from policies.topo_aware.index import Index, StateGroup
from policies.topo_aware.settings import TopoAwareSettings
from policies.topo_aware.solutions import Solution, Solutions
from policies.topo_aware.utility import HEAVIEST, JobNeeds, UtilityTerms

#: How long a job that waits for a better set waits before it is asked about again.
WAIT_S = 60.0
#: Choices kept for the decision log.
TOP = 6


#: Slurm's weight, minus the utility, GPUs left (packing) or their negative, node.
_Rank = tuple[int, float, int, str]


class _Chosen(NamedTuple):
    """GPUs on one node, and what they are worth."""

    name: str
    mask: int
    terms: UtilityTerms


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
        index = self._solutions.borrow(cluster)
        problem = _against_counts(request)
        need_gbps = float(request.options.get("memory-bandwidth", "0"))
        chosen, others = self._nearest(request, cluster, index, need_gbps)
        if len(chosen) < len(request.gpus_per_node):
            problem = problem or f"no free node has {need_gbps:g} GB/s of memory bandwidth left"
            chosen, others = self._nearest(request, cluster, index)
        self._solutions.give_back(index)
        placement = self._placement(request, cluster, chosen, others)
        if not problem and self.postpones and placement.utility < request.min_utility:
            problem = (
                f"the best free GPUs have a utility of {placement.utility:.2f}"
                f" ({_in_words(placement.terms)}), the job asks for {request.min_utility:.2f}"
            )
        return Wait(problem, at_most_s=WAIT_S, instead=placement) if problem else placement

    def _asked(self, request: Request, count: int) -> JobNeeds:
        kind = kind_of_request(request)
        weight = weight_of(kind.batch) if request.sensitive else 0
        told_apart = self._solutions.interference.told_apart(kind)
        return JobNeeds(count, told_apart, weight)

    def _nearest(
        self, request: Request, cluster: Cluster, index: Index, need_gbps: float = 0.0
    ) -> tuple[list[_Chosen], list[_Chosen]]:
        """As `_choose`, several nodes as few switches apart as Slurm's weights allow.

        By eq. 3 a path through one more switch is longer than any within a node. `need_gbps` is
        the host memory bandwidth that each node must have left.
        """
        groups = [group for group in index.groups() if self._has_memory(group, need_gbps)]
        found = self._choose(request, groups)
        if cluster.network is None or len(request.gpus_per_node) < 2 or not found[0]:
            return found
        most = sum(cluster.nodes[one.name].weight for one in found[0])
        open_groups = set(map(id, groups))

        def within(names: frozenset[str]) -> InDomain[tuple[list[_Chosen], list[_Chosen]]] | None:
            inside: dict[int, list[str]] = {}
            near: dict[int, StateGroup] = {}
            for name in sorted(names & cluster.nodes.keys()):
                group = index.group_of(name)
                if id(group) in open_groups:
                    near[id(group)] = group
                    inside.setdefault(id(group), []).append(name)
            chosen, others = self._choose(request, list(near.values()), inside)
            if not chosen or sum(cluster.nodes[one.name].weight for one in chosen) > most:
                return None
            worst = (-min(one.terms.utility for one in chosen),)
            free = sum(near[at].free_gpus * len(names) for at, names in inside.items())
            return InDomain(worst, free, (chosen, others))

        return in_lowest_domain(cluster.network, within) or found

    def _choose(
        self,
        request: Request,
        groups: list[StateGroup],
        inside: Mapping[int, list[str]] | None = None,
    ) -> tuple[list[_Chosen], list[_Chosen]]:
        """One node per count, distinct, best first; and the runners-up of the first.

        `inside`: the names that count, ascending, by the id of their group; None: all.
        """
        packing = -1 if request.options.get("spread") == "yes" else 1
        chosen: list[_Chosen] = []
        others: list[_Chosen] = []
        taken: dict[int, int] = {}
        known: dict[int, list[tuple[StateGroup, Solution]]] = {}
        for count in sorted(request.gpus_per_node, reverse=True):
            if count not in known:
                asked = self._asked(request, count)
                known[count] = self._solutions.solutions(groups, asked)
            ranked = []
            for group, (mask, terms) in known[count]:
                used = taken.get(id(group), 0) if taken else 0
                names = group.members if inside is None else inside[id(group)]
                if used >= len(names):
                    continue
                name = group.first(used + 1)[-1] if inside is None else inside[id(group)][used]
                remaining = packing * (group.free_gpus - count)
                key = (group.weight, -terms.utility, remaining, name)
                ranked.append((key, mask, terms, group))
            if not ranked:
                return [], []
            best = min(ranked, key=_key)
            taken[id(best[3])] = taken.get(id(best[3]), 0) + 1
            if not chosen:
                ranked.remove(best)
                rest = sorted(ranked, key=_key)[: TOP - 1]
                others = [_Chosen(key[3], mask, terms) for key, mask, terms, _ in rest]
            chosen.append(_Chosen(best[0][3], best[1], best[2]))
        return chosen, others

    def _across(
        self,
        request: Request,
        cluster: Cluster,
        network: Network,
        chosen: Sequence[_Chosen],
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
        weight = self._asked(request, max(request.gpus_per_node)).weight
        close = 1.0 - weight / HEAVIEST * min(1.0, max(0.0, (cost - least) / (most - least)))
        settings = self._solutions.settings
        weights = (settings.communication, settings.interference, settings.fragmentation)
        terms = (close, worst.interference, worst.fragmentation)
        total = sum(weight * term for weight, term in zip(weights, terms, strict=True))
        return UtilityTerms(round(total / sum(weights), 9), *terms)

    def _has_memory(self, group: StateGroup, need_gbps: float) -> bool:
        socket_gbps = self._solutions.settings.socket_memory_gbps
        if need_gbps <= 0 or socket_gbps <= 0:
            return True
        sockets = len(self._solutions.machine(group.node.topology).sockets)
        used = sum(job.memory_gbps for job in group.state.beside)
        return used + need_gbps <= socket_gbps * sockets

    def _placement(
        self, request: Request, cluster: Cluster, chosen: list[_Chosen], others: list[_Chosen]
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
        candidates = [_candidate([(c.name, c.mask)], rest, c.terms) for c in (chosen[0], *others)
                      if c.name not in taken]  # fmt: skip
        reason = f"utility {worst.utility:.2f}: {_in_words(worst.named())}"
        return replace(
            measured(gpus, request, cluster, self.name, reason),
            score=worst.utility,
            utility=worst.utility,
            terms=worst.named(),
            candidates=tuple(candidates),
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


def _key(ranked: tuple[_Rank, int, UtilityTerms, StateGroup]) -> _Rank:
    return ranked[0]


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


@lru_cache(maxsize=1)
def _shared_solutions(settings: TopoAwareSettings, site: Site) -> Solutions:
    """One for both policies of a configuration, so that they share what they compute."""
    return Solutions(settings, site.interference)
