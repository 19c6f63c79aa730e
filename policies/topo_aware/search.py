"""The nodes of one request, by the utility of what bipartitioning chooses on each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice
from typing import NamedTuple

from gres_topology import Network, NodeTopology
from policies.contract.assign import InDomain, in_lowest_domain
from policies.contract.bits import gpus_of
from policies.contract.nodes import Candidates
from policies.contract.nouns import Request
from policies.contract.ranking import Key, Ranking, each, lowest
from policies.scoring.rails import Rails
from policies.topo_aware.index import Index, State
from policies.topo_aware.solutions import Solutions
from policies.topo_aware.utility import UtilityTerms

#: Choices kept for the decision log.
TOP = 6
#: Rails that are tried where the nodes of a job differ in them, those that most have.
_MOST_TRIED = 4


class Chosen(NamedTuple):
    """GPUs on one node, and what they are worth."""

    name: str
    mask: int
    terms: UtilityTerms


class Found(NamedTuple):
    """One node per count, best first, none where they do not fit; the runners-up of the first."""

    chosen: list[Chosen]
    #: Computed when somebody looks at them.
    others: Callable[[], list[Chosen]] = list


class NodeSearch:
    """One request on one snapshot; each node must have `need_gbps` of host memory bandwidth."""

    def __init__(
        self,
        solutions: Solutions,
        request: Request,
        nodes: Candidates,
        index: Index,
        need_gbps: float = 0.0,
    ) -> None:
        self._solutions, self._request = solutions, request
        self._nodes, self._index, self._need_gbps = nodes, index, need_gbps
        self._packing = -1 if request.options.get("spread") == "yes" else 1
        self._wanted = sorted(request.gpus_per_node, reverse=True)
        self._rankings: Mapping[int, Ranking[State]] = {
            count: self._ranking(count) for count in set(self._wanted)
        }

    def _ranking(self, count: int) -> Ranking[State]:
        """Nodes with room by Slurm's weight, utility, then GPUs left (fewest, or most)."""
        solutions, kinds = self._solutions, self._nodes.table.kinds
        packing, need_gbps = self._packing, self._need_gbps
        needs = solutions.needs(self._request, count)

        # The ranking keeps this, which therefore holds no table (`StateIndex.ranking`).
        def keys(states: list[State]) -> list[Key | None]:
            ranked: list[Key | None] = []
            for state in states:
                left = state.free.bit_count() - count
                kind = kinds[state.kind]
                topology = kind.topology
                if left < 0 or not _has_memory(solutions, topology, state, need_gbps):
                    ranked.append(None)
                    continue
                _, terms = solutions.of(topology, state, needs)
                ranked.append((kind.heaviness, -terms.utility, packing * left, topology.lost))
            return ranked

        return self._index.states.ranking((needs, packing, need_gbps), keys)

    def nearest(self, network: Network | None) -> Found:
        """The best nodes; several as few switches apart as Slurm's weights allow.

        By eq. 3 a path through one more switch is longer than any within a node.
        """
        nodes, table = self._nodes, self._nodes.table
        found = self._choose(nodes.among)
        if network is None or len(self._wanted) < 2 or not found.chosen:
            return found
        most = self._weight(found)

        def within(places: int) -> InDomain[Found] | None:
            inside = places & nodes.among
            if inside.bit_count() < len(self._wanted):
                return None
            here = self._choose(inside)
            if not here.chosen or self._weight(here) > most:
                return None
            key = (-min(one.terms.utility for one in here.chosen),)
            free = sum(table.index[place].free.bit_count() for place in each(inside))
            return InDomain(key, (free,), here)

        return in_lowest_domain(network, table, within) or found

    def _weight(self, found: Found) -> int:
        table = self._nodes.table
        kinds = (table.kinds[table.index[table.place[one.name]].kind] for one in found.chosen)
        return sum(kind.heaviness for kind in kinds)

    def _choose(self, among: int) -> Found:
        chosen: list[Chosen] = []
        others: Callable[[], list[Chosen]] = list
        for count in self._wanted:
            ranking = self._rankings[count]
            best = next(ranking.walk(among), None)
            if best is None:
                return Found([])
            place = lowest(best[1])
            if not chosen:
                states = self._index.states
                unlike = among & ~states.places(states[place])
                rest = islice(ranking.walk(unlike), TOP - 1)
                others = self._later([lowest(places) for _, places in rest], count)
            chosen.append(self._on(place, count))
            among ^= 1 << place
        return Found(chosen, others)

    def on_rails(self, chosen: list[Chosen]) -> list[Chosen]:
        """The same nodes, with GPUs of no less utility on the same rails of the network.

        On as many of them as can have those of one, which of equal ones is the first.
        """
        counts = Counter(filter(None, map(self._rails, chosen)))
        if len(counts) < 2:
            return chosen
        targets = [rails for rails, _ in counts.most_common(_MOST_TRIED)]
        tried = [[self._moved_to(one, rails) for one in chosen] for rails in targets]
        most = max(tried, key=lambda some: sum(one is not None for one in some))
        return [moved or one for moved, one in zip(most, chosen, strict=True)]

    def _rails(self, one: Chosen) -> Rails:
        """The rails of its GPUs, in their order; empty where they are not known."""
        table = self._nodes.table
        rails = table.kinds[table.index[table.place[one.name]].kind].topology.rails
        return tuple(rails[gpu] for gpu in gpus_of(one.mask)) if rails else ()

    def _moved_to(self, one: Chosen, target: Rails) -> Chosen | None:
        """GPUs of these rails on the same node; None where they are in use or worth less."""
        own = self._rails(one)
        if own == target or len(own) != len(target):
            return one if own == target else None
        table = self._nodes.table
        place = table.place[one.name]
        free, state = table.index[place].free, self._index.states[place]
        topology = table.kinds[state.kind].topology
        mask = 0
        for rail in target:
            gpu = next((g for g in gpus_of(free & ~mask) if topology.rails[g] == rail), None)
            if gpu is None:
                return None
            mask |= 1 << gpu
        needs = self._solutions.needs(self._request, len(target))
        seats = self._index.seats(table, place)
        terms = self._solutions.scale(topology, state, needs).terms(seats.in_state(mask))
        return Chosen(one.name, mask, terms) if terms.utility >= one.terms.utility else None

    def _on(self, place: int, count: int) -> Chosen:
        """What a job of `count` GPUs gets on a node."""
        [chosen] = self._later([place], count)()
        return chosen

    def _later(self, places: list[int], count: int) -> Callable[[], list[Chosen]]:
        """The same of several nodes, as they are now."""
        table, states, solutions = self._nodes.table, self._index.states, self._solutions
        needs = solutions.needs(self._request, count)
        now = [(table.names[at], states[at], self._index.seats(table, at)) for at in places]

        def compute() -> list[Chosen]:
            chosen = []
            for name, state, seats in now:
                mask, terms = solutions.of(table.kinds[state.kind].topology, state, needs)
                chosen.append(Chosen(name, seats.on_node(mask), terms))
            return chosen

        return compute


def _has_memory(
    solutions: Solutions, topology: NodeTopology, state: State, need_gbps: float
) -> bool:
    """Whether so much host memory bandwidth is left."""
    socket_gbps = solutions.settings.socket_memory_gbps
    if need_gbps <= 0 or socket_gbps <= 0:
        return True
    sockets = len(solutions.machine(topology).sockets)
    used = sum(job.memory_gbps for job in state.beside)
    return used + need_gbps <= socket_gbps * sockets
