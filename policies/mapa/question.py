"""One question to a policy of the family: the best set of every candidate node, then the node."""

from __future__ import annotations

from itertools import islice

from gres_topology import NodeTopology
from policies.contract.assign import assign_ranked
from policies.contract.nodes import candidates
from policies.contract.nouns import (
    Candidate,
    CandidatesLater,
    Cluster,
    NodeState,
    Placement,
    Request,
)
from policies.contract.ranking import Key, lowest
from policies.errors import PolicyError
from policies.matching.choice import Choice
from policies.patterns.pattern import described
from policies.scoring.best_sets import BestSet
from policies.scoring.objectives import EFFBW, Objective, ideal_share, near_nics
from policies.scoring.offers import Offers
from policies.scoring.rails import choose, suiting
from policies.scoring.tables import TOP, Tables

#: A node, how many of its GPUs, and the best set of them.
Chosen = tuple[NodeState, int, Choice]

#: By so much of its run time a job may take longer on one node than on another before it is given
#: the better GPUs instead of those that leave other nodes whole.
FELT = 0.05


def longer(communication: float, share: float, best: float = 1.0) -> float:
    """By what part of its run time a job takes longer on one share of the ideal than on another.

    Amdahl's law, for a job that communicates that share of its run time on the ideal's GPUs.
    """
    return communication * (best / max(share, 0.01) - 1)


def felt(communication: float, share: float, delivers: float = 1.0) -> float:
    """By what part of its run time a job takes longer than on the best set of a whole node.

    `delivers` is the part of what others of its kind do that the node does (a power cap).
    """
    return (1 + longer(communication, share)) / delivers - 1


class NodeKeys:
    """What nodes are ranked by for requests of one `kind`, whatever other nodes there are.

    It knows no nodes, so that a ranking may keep it.
    """

    def __init__(
        self,
        request: Request,
        objective: Objective,
        tables: Tables,
        communication: float,
        least: float = 0.0,
    ) -> None:
        """`communication` is the share of its run time that the job communicates, [0, 1].

        Nodes on which no set has the `least` share of the ideal are none for it.
        """
        self._pattern, self._objective, self._tables = request.pattern, objective, tables
        self._communication, self._least = communication, least
        self._packing = -1.0 if request.options.get("spread") == "yes" else 1.0
        self._is_spread = len(request.gpus_per_node) > 1
        #: Requests of one kind rank nodes alike.
        self.kind = (
            objective.name,
            objective.demand,
            request.pattern,
            self._packing,
            self._is_spread,
            self._communication,
            self._least,
            tables,
        )

    def _near_nics(self, topology: NodeTopology, objective: Objective | None = None) -> Objective:
        nics = topology.nic_distance if self._is_spread else ()
        return near_nics(objective or self._objective, nics)

    def _has_least(self, topology: NodeTopology, best: BestSet | Choice, count: int) -> bool:
        return count == 1 or self.share(topology, best.effbw_gbps, count) >= self._least

    def top(self, state: NodeState, count: int) -> tuple[Choice, ...]:
        """The best sets of `count` GPUs on a node, the best first."""
        topology = state.topology
        objective = self._near_nics(topology)
        return self._tables.top(topology, self._pattern, count, state.free, objective)

    def first(self, state: NodeState, count: int) -> Choice:
        """The best set of `count` GPUs on a node; of those with the least share, if any has it."""
        topology = state.topology
        objective = self._near_nics(topology)
        found = self._tables.first(topology, self._pattern, count, state.free, objective)
        if self._least and not self._has_least(topology, found, count):
            widest = self._near_nics(topology, EFFBW)
            found = self._tables.first(topology, self._pattern, count, state.free, widest)
        return found

    def best(self, state: NodeState, count: int) -> tuple[BestSet, Key]:
        """Of `first` what nodes are ranked by, and the node's key; without the rank order."""
        [best] = self._best([state], count)
        return best, self._key(state.topology, best, state.free, count)

    def top_sets(self, state: NodeState, count: int) -> list[tuple[int, float, int]]:
        """As `Tables.top_sets`, shares being those of `share`."""
        topology = state.topology
        objective = self._near_nics(topology)
        found = self._tables.top_sets(topology, self._pattern, count, state.free, objective)
        if topology.healthy is None or count == 1:
            return found
        # Tables measure by the best that an impaired node still has.
        best = self._tables.ideal_effbw_gbps(topology, self._pattern, count)
        left = self.share(topology, best, count)
        return [(mask, left * of_left, weakest) for mask, of_left, weakest in found]

    def offers(self, topology: NodeTopology, count: int) -> Offers | None:
        """What nodes of a kind offer jobs of several nodes; None where rails are not known."""
        objective = self._near_nics(topology)
        return self._tables.offers(topology, self._pattern, count, objective)

    def keys(self, states: list[NodeState], count: int) -> list[Key | None]:
        """Across nodes: what the job would feel, NICs, nodes in use first, then what is lost."""
        alike: dict[int, list[NodeState]] = {}
        for state in states:
            alike.setdefault(id(state.topology), []).append(state)
        best = {kind: iter(self._best(some, count)) for kind, some in alike.items()}
        found: list[Key | None] = []
        for state in states:
            topology, its = state.topology, next(best[id(state.topology)])
            is_none = self._least and not self._has_least(topology, its, count)
            found.append(None if is_none else self._key(topology, its, state.free, count))
        return found

    def _best(self, alike: list[NodeState], count: int) -> list[BestSet]:
        """The best sets on nodes of one topology."""
        topology, frees = alike[0].topology, [state.free for state in alike]
        objective = self._near_nics(topology)
        found = self._tables.best(topology, self._pattern, count, frees, objective)
        if not self._least or all(self._has_least(topology, one, count) for one in found):
            return found
        widest = self._near_nics(topology, EFFBW)
        others = self._tables.best(topology, self._pattern, count, frees, widest)
        pairs = zip(found, others, strict=True)
        return [one if self._has_least(topology, one, count) else other for one, other in pairs]

    def _key(self, topology: NodeTopology, best: BestSet, free: int, count: int) -> Key:
        share = self.share(topology, best.effbw_gbps, count) if count > 1 else 1.0
        # What the job hardly feels still decides where nothing else does.
        rest = (-share, -best.weakest_gbps) if self._communication else ()
        return (
            *self._own_key(topology, best, share, count),
            best.nic / count,
            self._packing * (free.bit_count() - count),
            best.loss,
            *rest,
            best.destroyed_gbps,
        )

    def share(self, topology: NodeTopology, effbw_gbps: float, count: int) -> float:
        """A bandwidth as a share of that of the best set on an empty node of the same kind.

        What a GPU of another kind is worth to a job is for the site (Weight) and the user (a GPU
        type) to say, not for its links.
        """
        kind = topology.healthy or topology
        ideal = self._tables.ideal_effbw_gbps(kind, self._pattern, count)
        return ideal_share(effbw_gbps, ideal)

    def _own_key(self, topology: NodeTopology, best: BestSet, share: float, count: int) -> Key:
        across = self._objective.across
        links = self._communication if count > 1 and across == "bandwidth" else 0.0
        steps = int(felt(links, share, 1 - topology.lag_tenths / 10) / FELT + 1e-9)
        if count == 1:
            return (steps, best.broken_gbps / (topology.healthy or topology).widest_gbps)
        if across == "loss":
            return (steps, best.loss, best.destroyed_gbps)
        return (steps, -best.agg_gbps) if across == "sum" else (steps,)


class MapaQuestion:
    """One request against one snapshot."""

    def __init__(
        self,
        request: Request,
        cluster: Cluster,
        objective: Objective,
        tables: Tables,
        communication: float,
    ) -> None:
        """`communication` is the share of its run time that the job communicates, [0, 1]."""
        self._request, self._tables, self.communication = request, tables, communication
        self._nodes = candidates(cluster.nodes)
        self._objective = objective
        self._network = cluster.network
        self._is_spread = len(request.gpus_per_node) > 1
        self._ranked = self._keys(request.min_utility)

    def _keys(self, least: float) -> NodeKeys:
        return NodeKeys(self._request, self._objective, self._tables, self.communication, least)

    def _suits(self, places: int, count: int, nodes: int, taken: list[int]) -> int:
        """Of places of equal rank those whose nodes can have GPUs on the same rails."""
        table = self._nodes.table
        of_kind = [self._ranked.offers(kind.topology, count) for kind in table.kinds]
        offers = []
        for state, here in table.index.within(places):
            known = of_kind[state.kind]
            if known is None:
                return places
            offers.append((here, known.of(state.free)))
        before = [table.index[place] for place in taken]
        sets = [known.of(state.free) for state in before if (known := of_kind[state.kind])]
        return suiting(offers, nodes, sets)

    def _on_rails(self, chosen: list[Chosen]) -> list[Chosen]:
        """The same nodes with equally good GPUs that are on the same rails, as far as there are."""
        known = []
        for state, count, _ in chosen:
            offers = self._ranked.offers(state.topology, count)
            if offers is None:
                return chosen
            known.append(offers)
        sets = [offers.of(state.free) for offers, (state, _, _) in zip(known, chosen, strict=True)]
        if all(len(offer.masks) == 1 for offer in sets):
            return chosen
        moved = []
        for offers, (state, count, best), mask in zip(known, chosen, choose(sets), strict=True):
            choice = best if mask == best.mask else offers.choice(state.free, mask)
            moved.append((state, count, choice))
        return moved

    def top(self, state: NodeState, count: int) -> tuple[Choice, ...]:
        """The best sets of `count` GPUs on a node, the best first."""
        return self._ranked.top(state, count)

    def chosen(self) -> list[Chosen]:
        """The nodes, and on each the count and the best sets.

        On nodes where all GPUs have the utility that the job asks for, if there are any.
        """
        try:
            pairs = self._assigned()
        except PolicyError:
            if not self._request.min_utility:
                raise
            self._ranked = self._keys(0.0)
            pairs = self._assigned()
        chosen = [(state, count, self._ranked.first(state, count)) for state, count in pairs]
        if not self._is_spread:
            return chosen
        moved = self._on_rails(chosen)
        has_less = self._request.min_utility and self._utility(moved) < self._utility(chosen)
        return chosen if has_less else moved

    def _utility(self, chosen: list[Chosen]) -> float:
        return min(
            self._ranked.share(state.topology, choice.effbw_gbps, count)
            for state, count, choice in chosen
        )

    def _assigned(self) -> list[tuple[NodeState, int]]:
        return assign_ranked(
            self._request.gpus_per_node,
            self._nodes,
            self._ranked.keys,
            kind=self._ranked.kind,
            network=self._network,
            suits=self._suits if self._is_spread else None,
            of_one_kind=True,
        )

    def placement(self, policy: str, chosen: list[Chosen], says: str = "") -> Placement:
        """The answer in the name of that policy.

        `says` ends the reason where mapa's objective did not decide: `, with ... in mind`.
        """
        own = _candidate([(state.name, choice) for state, _, choice in chosen])
        utility = self._utility(chosen)
        return Placement(
            gpus=own.gpus,
            policy=policy,
            reason=self._reason(own, utility, chosen, says),
            score=own.score,
            effbw_gbps=own.effbw_gbps,
            agg_gbps=own.agg_gbps,
            preserved_gbps=own.preserved_gbps,
            utility=utility,
            candidates=self._candidates(own, chosen),
        )

    def _candidates(self, own: Candidate, chosen: list[Chosen]) -> CandidatesLater:
        """The choice itself, the runners-up on its first node, the best of other nodes."""
        first, count, best = chosen[0]
        rest = self.runners_up(count, {state.name for state, _, _ in chosen})
        fixed = [(state.name, choice) for state, _, choice in chosen[1:]]

        def compute() -> list[Candidate]:
            others = [choice for choice in self.top(first, count) if choice.mask != best.mask]
            on_node = [_candidate([(first.name, choice), *fixed]) for choice in others]
            beside = [(state.name, self._ranked.first(state, count)) for state in rest]
            elsewhere = [_candidate([one, *fixed]) for one in beside]
            return [own, *on_node[: TOP - 1 - len(elsewhere)], *elsewhere]

        return CandidatesLater(compute)

    def runners_up(self, count: int, taken: set[str]) -> list[NodeState]:
        """The best nodes beside those taken, and unlike them, each of a rank of its own."""
        nodes, table = self._nodes, self._nodes.table
        among = nodes.among
        for name in taken:
            among &= ~table.index.places(table.index[table.place[name]])
        if not among:
            return []
        ranking = table.ranking(self._ranked.kind, count, self._ranked.keys)
        places = (lowest(places) for _, places in ranking.walk(among))
        return [table.node(place) for place in islice(places, TOP // 2 - 1)]

    def _reason(
        self,
        own: Candidate,
        utility: float,
        chosen: list[Chosen],
        says: str,
    ) -> str:
        proven = all(choice.proven for _, _, choice in chosen)
        exact = "" if proven else " (the best found, not proven the best)"
        if max(self._request.gpus_per_node) == 1:
            which = f"a GPU{says}" if says else "the GPU whose loss hurts the rest least"
            return f"{which}{self._apart(own)}{exact}"
        pattern = described(self._request.pattern, self._request.gpus_per_node)
        sizes = set(self._request.gpus_per_node)
        best = f"best {sizes.pop()} GPUs" if len(sizes) == 1 else "best GPUs"
        return (
            f"{pattern}: {own.effbw_gbps:.1f} GB/s{self._by(chosen)}, {100 * utility:.0f} % of the"
            f" {best} of an empty node{says or self._objective.says}{self._apart(own)}{exact}"
        )

    def _apart(self, own: Candidate) -> str:
        """Where the nodes of a job of several are, as far as the network is known."""
        if self._network is None or not self._is_spread:
            return ""
        joined = self._network.common(own.gpus)
        return ", nodes joined by no switch" if joined is None else f", nodes below {joined.name}"

    def _by(self, chosen: list[Chosen]) -> str:
        """Words for the reason where every figure comes from the site's own measurements."""
        if not all(state.topology.calibration for state, _, _ in chosen):
            return ""
        models = {
            self._tables.model_name(state.topology, self._request.pattern, count)
            for state, count, _ in chosen
            if count > 1
        }
        return " as calibrated" if models == {"calibrated"} else ""


def _candidate(choices: list[tuple[str, Choice]]) -> Candidate:
    if len(choices) == 1:  # by far the most, and worth a few microseconds each
        name, choice = choices[0]
        return Candidate(
            gpus={name: choice.order},
            score=choice.score,
            effbw_gbps=choice.effbw_gbps if len(choice.order) > 1 else 0.0,
            agg_gbps=choice.agg_gbps,
            preserved_gbps=choice.preserved_gbps,
        )
    linked = [choice.effbw_gbps for _, choice in choices if len(choice.order) > 1]
    return Candidate(
        gpus={name: choice.order for name, choice in choices},
        score=min(choice.score for _, choice in choices),
        effbw_gbps=min(linked, default=0.0),
        agg_gbps=sum(choice.agg_gbps for _, choice in choices),
        preserved_gbps=sum(choice.preserved_gbps for _, choice in choices),
    )
