"""What GPU sets are worth, computed once per (shape of node, pattern, size).

Policies ask for the `first` set or the `top`. Nodes of up to 16 GPUs have tables, others are
searched (`policies.matching.large`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gres_topology import NodeTopology
from policies.bandwidth.model import model_for
from policies.contract.bits import EXACT_GPUS, Runs, gpus_of, mask_of
from policies.contract.demand import Shares
from policies.contract.nodes import runs_of
from policies.matching import large
from policies.matching.choice import Choice
from policies.matching.graph_solver import MOST_GPUS
from policies.matching.kept import Kept
from policies.matching.links import link_mbps
from policies.matching.solved import solved
from policies.patterns.pattern import fitting, pattern_of
from policies.scoring.best_sets import BestSet, as_best, best_sets
from policies.scoring.node_tables import NodeTables
from policies.scoring.objectives import Objective, ideal_share
from policies.scoring.offers import Offers

#: Answers kept, some 2 KB each; when there are more, all are dropped.
REMEMBERED = 20_000
#: Tables kept of nodes of 16 GPUs, by shape of node and pattern: some 2.6 MB each.
KINDS = 64
#: Jobs of several nodes by kind of node and size: what is kept of the sets they are offered.
OFFERED = 256
#: How many alternatives an answer carries for the decision log.
TOP = 8


def is_tabulated(topology: NodeTopology, pattern: str) -> bool:
    """Whether all sets of such a node are tabulated; else they are searched when asked for."""
    if topology.gpus > EXACT_GPUS:
        return False
    return pattern_of(pattern).tabulated or topology.gpus <= MOST_GPUS


#: A question: shape, pattern, GPUs, free mask, objective, what that was made for, and how many.
_Asked = tuple[str, str, int, int, str, tuple[Shares, tuple[int, ...]], int]


class Tables:
    """Tables of every kind of node seen so far, and the answers given."""

    def __init__(self) -> None:
        self._nodes: Kept[NodeTables] = Kept(KINDS)
        self._answers: dict[_Asked, tuple[Choice, ...]] = {}
        self._offers: dict[tuple[object, ...], Offers] = {}
        self._ideals: dict[tuple[str, str, int], float] = {}
        self._runs: dict[tuple[str, tuple[int, ...]], Runs] = {}

    def of(self, topology: NodeTopology, pattern: str) -> NodeTables:
        """The tables of one kind of node (at most `EXACT_GPUS` GPUs) and one pattern."""
        key = (topology.shape, pattern)
        return self._nodes.get(key, topology.gpus, lambda: NodeTables(topology, pattern, self.of))

    def ideal_effbw_gbps(self, topology: NodeTopology, pattern: str, k: int) -> float:
        """The best any set of k GPUs reaches on an empty node of this kind."""
        key = (topology.shape, pattern, k)
        ideal = self._ideals.get(key)
        if ideal is None:
            fitted = fitting(pattern, k)
            if is_tabulated(topology, fitted):
                ideal = self.of(topology, fitted).sets(k).ideal_effbw_gbps
            else:
                ideal = large.ideal_gbps(topology, fitted, k)
            self._ideals[key] = ideal
        return ideal

    def model_name(self, topology: NodeTopology, pattern: str, k: int) -> str:
        """The bandwidth model that tells sets of this size apart."""
        return model_for(topology, pattern_of(fitting(pattern, k)).judged_as, k).name

    def top(
        self, topology: NodeTopology, pattern: str, k: int, free_mask: int, objective: Objective
    ) -> tuple[Choice, ...]:
        """The best sets of k GPUs within `free_mask` (which has at least k), best first."""
        return self._top(topology, pattern, k, free_mask, objective, TOP)

    def first(
        self, topology: NodeTopology, pattern: str, k: int, free_mask: int, objective: Objective
    ) -> Choice:
        """The first of `top`: most of the price of a set is its rank order."""
        return self._top(topology, pattern, k, free_mask, objective, 1)[0]

    def _top(
        self,
        topology: NodeTopology,
        pattern: str,
        k: int,
        free_mask: int,
        objective: Objective,
        most: int,
    ) -> tuple[Choice, ...]:
        # One GPU talks to nobody, whatever the pattern.
        pattern = "ring" if k == 1 else fitting(pattern, k)
        ahead = (objective.demand, objective.nic_distance)
        is_listed = is_tabulated(topology, pattern)
        # Of GPUs that can take each other's place it does not matter which ones are free.
        is_known = is_listed and objective.nic_distance in ((), topology.nic_distance)
        least = self._runs_of(topology).least(free_mask) if is_known else free_mask
        key = (topology.shape, pattern, k, least, objective.name, ahead, most)
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= REMEMBERED:
                self._answers.clear()
            if is_listed:
                answer = self.of(topology, pattern).top(k, least, objective, most)
            else:
                answer = large.find(topology, pattern, k, free_mask, most)
            self._answers[key] = answer
        if least != free_mask:
            to = dict(zip(gpus_of(least), gpus_of(free_mask), strict=True))
            answer = tuple(choice.on(to) for choice in answer)
        return answer

    def top_sets(
        self, topology: NodeTopology, pattern: str, k: int, free_mask: int, objective: Objective
    ) -> list[tuple[int, float, int]]:
        """Of `top`, where sets are tabulated: the mask, the share of the ideal, the weakest (MB/s).

        Without their rank orders, which are most of the price.
        """
        pattern = "ring" if k == 1 else fitting(pattern, k)
        return self.of(topology, pattern).top_sets(k, free_mask, objective, TOP)

    def _runs_of(self, topology: NodeTopology) -> Runs:
        key = (topology.shape, topology.nic_distance)
        runs = self._runs.get(key)
        if runs is None:
            if len(self._runs) >= KINDS:
                self._runs.clear()
            runs = self._runs[key] = runs_of(topology)
        return runs

    def offers(
        self, topology: NodeTopology, pattern: str, k: int, objective: Objective
    ) -> Offers | None:
        """What nodes of this kind offer a job of several nodes; None where rails are not known.

        Sets of more than `EXACT_GPUS` GPUs are not listed, so there is none of larger nodes.
        """
        pattern = "ring" if k == 1 else fitting(pattern, k)
        if not topology.rails or not is_tabulated(topology, pattern):
            return None
        ahead = (objective.demand, objective.nic_distance)
        sharp = topology.sharp_rails
        key = (topology.shape, pattern, k, objective.name, ahead, topology.rails, sharp)
        offers = self._offers.get(key)
        if offers is None:
            if len(self._offers) >= OFFERED:
                self._offers.clear()
            tables = self.of(topology, pattern)
            offers = self._offers[key] = Offers(tables, k, objective, topology.rails, sharp)
        return offers

    def best(
        self,
        topology: NodeTopology,
        pattern: str,
        k: int,
        frees: Sequence[int],
        objective: Objective,
    ) -> list[BestSet]:
        """Of the best set in each of these masks (at least k GPUs each) what nodes go by."""
        fitted = "ring" if k == 1 else fitting(pattern, k)
        if is_tabulated(topology, fitted):
            return best_sets(self.of(topology, fitted), k, frees, objective)
        nics = objective.nic_distance
        return [
            as_best(choice, tuple(nics[gpu] for gpu in gpus) if nics else ())._replace(
                mask=mask_of(gpus[at] for at in choice.order)
            )
            for gpus, choice in large.firsts(topology, fitted, k, frees)
        ]

    def worth(
        self, topology: NodeTopology, pattern: str, order: tuple[int, ...], free_mask: int
    ) -> Choice:
        """What a set chosen by someone else is worth; `order` is kept as its rank order."""
        k = len(order)
        pattern = fitting(pattern, k)
        ideal = self.ideal_effbw_gbps(topology, pattern, k)
        if is_tabulated(topology, pattern):
            return self.of(topology, pattern).worth(order, free_mask, ideal)
        choice = large.measured(link_mbps(topology), pattern, order, free_mask)
        share = ideal_share(choice.effbw_gbps, ideal)
        return replace(choice, score=share, share=share, proven=True)

    def size_bytes(self) -> int:
        """Memory of the tables (remembered answers not counted)."""
        nodes = self._nodes.values()
        return solved.size_bytes() + sum(node.size_bytes() for node in nodes)


#: The one set of tables a process needs; topologies of equal shape share them.
tables = Tables()
