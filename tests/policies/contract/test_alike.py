"""Nodes that differ by GPUs that are alike are ranked once, and no answer changes by it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from machines import machine, of_boards

from gres_topology import NodeTopology, catalog
from policies import Cluster, NodeState, Request
from policies.contract.bits import Runs, gpus_of, mask_of, moved
from policies.contract.nodes import candidates
from policies.registry import registry


def renamed(topology: NodeTopology, order: list[int]) -> tuple[object, ...]:
    """What placement goes by, with the GPUs in another order."""
    links = topology.bandwidth_gbps[np.ix_(order, order)].tolist()
    kinds = [[topology.kinds[i][j] for j in order] for i in order]
    nics = [topology.nic_distance[i] for i in order] if topology.nic_distance else []
    return kinds, links, nics


@pytest.mark.parametrize("topology", [*map(catalog.load, catalog.names()), of_boards()], ids=str)
def test_swapping_gpus_of_a_run_or_whole_boards_changes_nothing(topology):
    same, n = renamed(topology, list(range(topology.gpus))), topology.gpus
    assert mask_of(range(n)) == sum(topology.runs)
    for run in topology.runs:
        for one, other in pairwise(gpus_of(run)):
            order = list(range(n))
            order[one], order[other] = other, one
            assert renamed(topology, order) == same
            assert topology.numa[one] == topology.numa[other]
    for group in topology.boards:
        for one, other in pairwise(group):
            order = list(range(n))
            for a, b in zip(gpus_of(one), gpus_of(other), strict=True):
                order[a], order[b] = b, a
            assert renamed(topology, order) == same


@pytest.mark.parametrize(
    ("name", "runs"), [("dgx1v", 8), ("dgx-h100", 2), ("dgx2", 2), ("minsky", 2), ("mi250x", 8)]
)
def test_how_many_runs_machines_have(name, runs):
    assert len(catalog.load(name).runs) == runs


def test_the_least_mask_has_as_many_gpus_of_each_run():
    runs = Runs([0b0011, 0b0100, 0b111000])
    assert runs.least(0b101110) == 0b011101
    boards = of_boards()
    assert boards.boards == ((0xFF, 0xFF00, 0xFF0000, 0xFF000000),)
    whole = Runs(boards.runs, boards.boards)
    assert whole.least(0x80110003) == whole.least(0xC0010300) == 0x00010303
    assert Runs(boards.runs).least(0x80110003) == 0x01030003
    assert not Runs([1, 2, 4])


@pytest.mark.parametrize(
    ("name", "boards", "masks"), [("minsky", (), 9), ("dgx2", (), 81), ("gb200-nvl72", (), None)]
)
def test_all_masks_that_differ(name, boards, masks):
    topology = catalog.load(name)
    runs = Runs(topology.runs, boards)
    every = list(runs.each_least(topology.gpus, 100))
    if masks is None:
        assert every == []
        return
    assert len(every) == masks == len(set(every))
    assert set(every) == {runs.least(free) for free in range(1 << topology.gpus)}
    assert list(runs.each_least(topology.gpus, masks - 1)) == []


def test_all_masks_of_whole_boards_that_differ():
    boards = of_boards()
    runs = Runs(boards.runs, boards.boards)
    every = list(runs.each_least(32, 600))
    assert len(every) == 495 == len(set(every))
    assert all(runs.least(free) == free for free in every)


def test_all_masks_where_some_gpus_are_like_no_other():
    runs = Runs([0b0011, 0b0100, 0b111000])
    assert set(runs.each_least(6, 24)) == {runs.least(free) for free in range(64)}


def test_a_set_is_moved_to_the_same_places_among_other_gpus():
    assert moved(0b0110, 0b0111, 0b101010) == 0b101000
    assert moved(0b1, 0b11, 0b11) == 0b1


@pytest.mark.parametrize("policy", registry.names())
@pytest.mark.parametrize("seed", range(3))
def test_telling_gpus_apart_that_are_alike_gives_the_same_answers(policy, seed, monkeypatch):
    draw = Random(seed)
    kinds = [machine("dgx-a100"), machine("dgx2"), machine("minsky"), of_boards()]
    nodes = {}
    for at in range(30):
        topology = draw.choice(kinds)
        free = draw.getrandbits(topology.gpus) & draw.getrandbits(topology.gpus)
        nodes[f"n{at:02}"] = NodeState(f"n{at:02}", topology, free)
    requests = [Request(counts) for counts in ((1,), (2,), (3,), (4,), (5,), (3, 2))]

    def answers(states):
        told = registry.build(policy)
        table = candidates(states)
        return len(set(table.table.alike.states())), [
            told.place(request, Cluster(table)) for request in requests
        ]

    few, found = answers(nodes)
    apart = {topology.name: replace(topology) for topology in kinds}
    for topology in apart.values():
        vars(topology)["runs"] = tuple(1 << gpu for gpu in range(topology.gpus))
        vars(topology)["boards"] = ()
    told = {name: replace(node, topology=apart[node.topology.name]) for name, node in nodes.items()}
    many, expected = answers(told)
    assert found == expected
    assert few < many
