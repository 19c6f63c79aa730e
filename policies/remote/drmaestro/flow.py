"""Minimum-cost flow on integer networks, by OR-Tools where it is installed, else by NetworkX.

The solver is an extra (`slurm-gputopo[flow]`): cost scaling as in the thesis (section 5.4.1),
a thousand machines in well under a second. NetworkX's network simplex gives the same cost,
slowly, and is what the tests compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from policies.errors import PolicyError

#: (tail, head) -> units; of arcs that carry none, nothing is said.
Flows = dict[tuple[Hashable, Hashable], int]


@dataclass(slots=True)
class FlowNetwork:
    """Supplies at nodes, and at most one arc per (tail, head): (capacity, cost per unit).

    Costs are integers of at least 0; supplies sum up to 0.
    """

    supplies: dict[Hashable, int] = field(default_factory=dict)
    arcs: dict[tuple[Hashable, Hashable], tuple[int, int]] = field(default_factory=dict)

    def supply(self, node: Hashable, units: int) -> None:
        """That many units come from this node (negative: are wanted there)."""
        self.supplies[node] = self.supplies.get(node, 0) + units

    def arc(self, tail: Hashable, head: Hashable, capacity: int, cost: int = 0) -> None:
        """An arc; none where nothing could flow."""
        if capacity > 0:
            self.arcs[tail, head] = (capacity, cost)

    def cost(self, flows: Flows) -> int:
        """What these flows cost together."""
        return sum(units * self.arcs[arc][1] for arc, units in flows.items())


FlowSolver = Callable[[FlowNetwork], Flows]


def by_networkx(network: FlowNetwork) -> Flows:
    """The cheapest flow by network simplex; PolicyError if there is none."""
    import networkx as nx

    graph = nx.DiGraph()
    for node, units in network.supplies.items():
        graph.add_node(node, demand=-units)
    for (tail, head), (capacity, cost) in network.arcs.items():
        graph.add_edge(tail, head, capacity=capacity, weight=cost)
    if not network.arcs:
        return {}
    try:
        _, flows = nx.network_simplex(graph)
    except nx.NetworkXUnfeasible as error:
        raise PolicyError(f"a flow network without a solution: {error}") from None
    return {
        (tail, head): units
        for tail, heads in flows.items()
        for head, units in heads.items()
        if units
    }


def by_ortools(network: FlowNetwork) -> Flows:
    """The cheapest flow by OR-Tools' cost scaling; PolicyError if there is none."""
    from ortools.graph.python import min_cost_flow

    solver = min_cost_flow.SimpleMinCostFlow()
    number: dict[Hashable, int] = {}
    arcs = tuple(network.arcs)
    for (tail, head), (capacity, cost) in network.arcs.items():
        ends = (number.setdefault(tail, len(number)), number.setdefault(head, len(number)))
        solver.add_arc_with_capacity_and_unit_cost(*ends, capacity, cost)
    for node, units in network.supplies.items():
        solver.set_node_supply(number.setdefault(node, len(number)), units)
    if not arcs:
        return {}
    status = solver.solve()
    if status != solver.OPTIMAL:
        raise PolicyError(f"a flow network without a solution: OR-Tools says {status}")
    flows = ((arc, int(solver.flow(index))) for index, arc in enumerate(arcs))
    return {arc: units for arc, units in flows if units}


def best_solver() -> FlowSolver:
    """OR-Tools if it is installed, else NetworkX."""
    try:
        import ortools.graph.python.min_cost_flow  # noqa: F401
    except ImportError:
        return by_networkx
    return by_ortools
