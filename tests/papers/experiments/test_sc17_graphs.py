"""A job's own graph: weighted eq. 3, mappings task by task, and what knowing the graph is worth."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from gres_topology.catalog import load
from papers.experiments.sc17 import graphs
from papers.experiments.sc17.job_graph import (
    GraphBipartition,
    GraphScale,
    JobGraph,
    from_edges,
    from_pattern,
)
from policies.contract.interference import Interference, Kind
from policies.topo_aware.drb import Bipartition
from policies.topo_aware.machine import MachineGraph
from policies.topo_aware.settings import TopoAwareSettings
from policies.topo_aware.utility import JobNeeds, SetScorer
from simulation import SimulationError

MINSKY, DGX1V = MachineGraph(load("minsky")), MachineGraph(load("dgx1v"))


def scale_of(machine, free, tasks):
    needs = JobNeeds(tasks, Kind("", 0, tasks), 4)
    return SetScorer(machine, free, (), needs, TopoAwareSettings(), Interference({}))


@pytest.fixture(scope="module")
def result():
    return graphs.run((1, 2), count=12)


def test_equation_3_with_weights_by_hand():
    """Tasks 0 and 2 on one socket (path 1), 1 on the other (path 42 through the host)."""
    graph = from_edges("g", 3, {(0, 1): 2.0, (0, 2): 4.0})
    across = float(MINSKY.distance[0, 2])
    assert graph.cost((0, 2, 1), MINSKY.distance) == 2 * across + 4 * MINSKY.distance[0, 1]


def test_with_equal_weights_it_is_equation_3():
    graph = from_edges("g", 3, dict.fromkeys([(0, 1), (0, 2), (1, 2)], 1.0))
    assert graph.cost((0, 3, 5), DGX1V.distance) == DGX1V.paths(0b101001)


@pytest.mark.parametrize(
    ("said", "weights"),
    [
        ("2 to 6 tasks", np.zeros((7, 7))),
        ("symmetric", np.triu(np.ones((3, 3)), 1)),
        ("from 0 to 4", 5.0 - 5.0 * np.eye(3)),
    ],
)
def test_what_is_no_job_graph_is_refused(said, weights):
    with pytest.raises(SimulationError, match=said):
        JobGraph("g", weights)


@pytest.mark.parametrize("free", [0b11111111, 0b11010110, 0b01111000])
def test_the_utility_of_a_complete_graph_is_topo_awares(free):
    graph = from_edges("g", 3, dict.fromkeys([(0, 1), (0, 2), (1, 2)], 4.0))
    scale = scale_of(DGX1V, free, 3)
    by_graph = GraphScale(scale, graph)
    for gpus in permutations([gpu for gpu in range(8) if free >> gpu & 1], 3):
        mask = sum(1 << gpu for gpu in gpus)
        utility = by_graph.utility(dict(enumerate(gpus)))
        assert utility == pytest.approx(scale.terms(mask).utility, abs=1e-8)
    _, terms = Bipartition(scale).solve()
    at = GraphBipartition(by_graph).solve()
    assert by_graph.utility(at) >= terms.utility - 0.02


def test_the_best_is_that_of_every_mapping():
    graph = from_edges("g", 3, {(0, 1): 1.0, (1, 2): 3.0})
    by_graph = GraphScale(scale_of(DGX1V, 0b1011011, 3), graph)
    gpus = [0, 1, 3, 4, 6]
    utility, least = by_graph.best(gpus)
    tried = list(permutations(gpus, 3))
    assert utility == max(by_graph.utility(dict(enumerate(one))) for one in tried)
    assert least == min(graph.cost(one, DGX1V.distance) for one in tried)


def test_pairs_that_talk_much_get_a_socket_each():
    graph = from_edges("g", 4, {(0, 2): 4.0, (1, 3): 4.0, (0, 1): 1.0})
    at = GraphBipartition(GraphScale(scale_of(MINSKY, 0b1111, 4), graph)).solve()
    assert {frozenset((at[0], at[2])), frozenset((at[1], at[3]))} == {
        frozenset((0, 1)),
        frozenset((2, 3)),
    }


def test_a_mapping_takes_each_free_gpu_once():
    graph = from_pattern("tree", 5)
    for free in (0b11111111, 0b10111011, 0b11111):
        at = GraphBipartition(GraphScale(scale_of(DGX1V, free, 5), graph)).solve()
        assert sorted(at) == [0, 1, 2, 3, 4]
        assert len(set(at.values())) == 5
        assert all(free >> gpu & 1 for gpu in at.values())


def test_nobody_is_better_than_the_best_mapping(result):
    for row in result.measured.values():
        for name, value in row.items():
            if not name.endswith("_sd"):
                assert value >= (1 - 1e-9 if name.endswith("over_least") else -1e-9), name


def test_who_knows_the_graph_loses_less_than_who_takes_it_for_complete(result):
    for machine in graphs.MACHINES:
        given, ignored = (
            result.measured[f"{name} on {machine}"] for name in (graphs.GIVEN, "topo-aware")
        )
        for name in given:
            if name.endswith("utility_below_best"):
                assert given[name] <= ignored[name] + 0.005, name


def test_on_the_papers_machine_the_mapping_is_the_best_for_every_graph(result):
    row = result.measured[f"{graphs.GIVEN} on minsky"]
    found = {v for name, v in row.items() if name.endswith("at_least_paths")}
    assert found == {1.0}
