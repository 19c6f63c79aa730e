"""Nodes with broken, slow or capped parts: every policy avoids them by what they have lost."""

import pytest

from gres_topology import catalog
from gres_topology.impaired import impaired
from gres_topology.topology import Impairment
from policies import Cluster, NodeState, Request
from policies.registry import registry
from policies.scoring.tables import Tables

DGX1V = catalog.load("dgx1v")
FULL = 0xFF
#: All that place on their own; those that compare links, and those that do not.
BY_LINKS = ("mapa", "mapa-greedy", "mapa-preserve", "topo-aware")
POLICIES = (*BY_LINKS, "first-fit", "best-fit")


def marked(*parts):
    return impaired(DGX1V, [Impairment(gpus, share) for gpus, share in parts])


def placed(policy, gpus, **nodes):
    cluster = Cluster({name: NodeState(name, node, FULL) for name, node in nodes.items()})
    return registry.get(policy).place(Request((gpus,)), cluster)


@pytest.mark.parametrize("policy", BY_LINKS)
@pytest.mark.parametrize("share", [0.5, 0.0])
def test_a_pair_is_taken_whose_link_is_whole(policy, share):
    assert placed(policy, 2, a=DGX1V).gpus == {"a": (0, 3)}
    (pair,) = placed(policy, 2, a=marked(((0, 3), share))).gpus.values()
    assert DGX1V.kinds[pair[0]][pair[1]] == "NV2"
    assert set(pair) != {0, 3}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_whole_node_goes_where_no_link_is_slow(policy):
    """By name `a` would come first."""
    slow = marked(((0, 3), 0.5))
    assert [*placed(policy, 8, a=slow, b=DGX1V).gpus] == ["b"]
    assert [*placed(policy, 8, a=DGX1V, b=slow).gpus] == ["a"]


@pytest.mark.parametrize("policy", POLICIES)
def test_of_capped_nodes_the_one_that_delivers_most_is_taken(policy):
    """Also by those that compare no links; Slurm's weight still goes first."""
    nodes = {"a": marked(((), 0.6)), "b": marked(((), 0.9)), "c": marked(((), 0.4))}
    for gpus in (1, 2, 8):
        assert [*placed(policy, gpus, **nodes).gpus] == ["b"]
    heavy = {n: NodeState(n, node, FULL, 0, 5 if n == "b" else 1) for n, node in nodes.items()}
    chosen = registry.get(policy).place(Request((2,)), Cluster(heavy))
    assert [*chosen.gpus] == ["a"]


def test_what_is_predicted_falls_with_what_is_left():
    """For every set at most what the healthy node has, and the less the less is left."""
    tables, last = Tables(), None
    for share in (1.0, 0.8, 0.5, 0.3, 0.0):
        node = marked(((0, 3), share)) if share < 1 else DGX1V
        effbw = [tables.of(node, "ring").sets(k).effbw for k in range(2, 9)]
        if last is not None:
            pairs = zip(effbw, last, strict=True)
            assert all((now <= before + 1e-9).all() for now, before in pairs)
        last = effbw
    whole = tables.of(DGX1V, "ring").sets(2)
    half = tables.of(marked(((0, 3), 0.5)), "ring").sets(2)
    pairs = zip(half.masks, half.effbw, whole.effbw, strict=True)
    changed = [(held, now / before) for held, now, before in pairs if now != before]
    assert changed == [(0b1001, pytest.approx(0.5))]


def test_a_node_whose_links_are_whole_is_worth_what_it_was():
    for part in (((5,), 0.0), ((), 0.7)):
        healthy, other = Tables().of(DGX1V, "ring"), Tables().of(marked(part), "ring")
        assert all((healthy.sets(k).effbw == other.sets(k).effbw).all() for k in range(2, 9))
