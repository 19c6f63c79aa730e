"""The best set of many masks at once, against the one `top` finds for each of them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from machines import machine

from gres_topology import NodeTopology
from policies.matching.links import link_mbps, widths
from policies.scoring import best_sets as module
from policies.scoring.best_sets import BestSet, as_best, best_sets
from policies.scoring.objectives import (
    AGGREGATE,
    BALANCED,
    EFFBW,
    PRESERVED,
    WIDEST,
    near_nics,
    site_insensitive,
    site_sensitive,
)
from policies.scoring.tables import Tables

USUAL = ((2, 0.5), (4, 0.5))
OBJECTIVES = [BALANCED, WIDEST, EFFBW, PRESERVED, AGGREGATE, site_sensitive(USUAL),
              site_insensitive(USUAL)]  # fmt: skip


def compared(best: BestSet, objective_name: str) -> BestSet:
    """The sum of links is that of the rank order, and only `aggregate` orders ranks by it."""
    return best if objective_name == "aggregate" else best._replace(agg_gbps=0.0)


def is_even(topology: NodeTopology) -> bool:
    """Whether ties are broken by what is left of NUMA nodes, which the best sets do not know."""
    return len(widths(link_mbps(topology))) == 1


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
@pytest.mark.parametrize("name", ["dgx1v", "minsky", "mi250x", "a100-pcie-bridged", "dgx2"])
def test_it_is_the_first_of_the_best(name, objective):
    topology, draw, tables = machine(name), Random(name), Tables()
    distances = tuple(draw.choice((0, 2, 4)) for _ in range(topology.gpus))
    for k in sorted({1, 2, 3, topology.gpus // 2}):
        frees = [draw.getrandbits(topology.gpus) for _ in range(30)]
        frees = [free for free in frees if free.bit_count() >= k][:12]
        for wanted in (objective, near_nics(objective, distances)):
            pattern = draw.choice(("ring", "tree", "all-to-all"))
            best = tables.best(topology, pattern, k, frees, wanted)
            tops = [tables.top(topology, pattern, k, free, wanted)[0] for free in frees]
            for one, top in zip(best, tops, strict=True):
                there = as_best(top, wanted.nic_distance)
                if is_even(topology):
                    there = there._replace(mask=one.mask)
                assert compared(one, wanted.name) == pytest.approx(
                    compared(there, wanted.name), abs=1e-12
                )


def test_masks_are_answered_in_their_order_however_many_are_looked_at_at_once(monkeypatch):
    tables, topology, draw = Tables(), machine("dgx1v"), Random(3)
    frees = [draw.getrandbits(8) | 0b11 for _ in range(200)]
    node = tables.of(topology, "ring")
    together = best_sets(node, 2, frees, BALANCED)
    monkeypatch.setattr(module, "_AT_ONCE", 40)
    assert best_sets(node, 2, frees, BALANCED) == together
    assert best_sets(node, 2, frees[:1], BALANCED) == together[:1]


def test_a_node_that_has_no_tables_is_searched_as_ever():
    topology, tables = machine("gb200-nvl72"), Tables()
    free = (1 << 20) - 1
    (best,) = tables.best(topology, "ring", 4, [free], replace(EFFBW))
    assert best == as_best(tables.top(topology, "ring", 4, free, EFFBW)[0], ())
