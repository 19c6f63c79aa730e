"""Hundred nodes that are marked each in a way of its own: their tables are made once."""

from __future__ import annotations

import numpy as np

import policies.matching.kept as kept_module
from gres_topology import catalog
from gres_topology.impaired import impaired
from gres_topology.topology import Impairment
from policies.contract.bits import subsets
from policies.matching.kept import Kept
from policies.scoring.best_sets import _of_size, best_sets
from policies.scoring.node_tables import NodeTables
from policies.scoring.objectives import BALANCED, EFFBW
from policies.scoring.tables import Tables

DGX1 = catalog.load("dgx1v")
MARKED = [impaired(DGX1, [Impairment((0, 3), 0.9 - at / 1000)]) for at in range(100)]


def test_hundred_marked_nodes_keep_their_tables(made_tables):
    """Asked again in the same order, which is the worst for what keeps the last ones."""
    tables = Tables()
    for _ in range(2):
        for topology in MARKED:
            tables.of(topology, "ring").sets(2)
    assert len(made_tables) == len(MARKED) + 1  # and those of the healthy machine, once


def test_what_is_known_of_all_masks_is_what_one_mask_gives():
    for objective in (BALANCED, EFFBW):
        tables = NodeTables(MARKED[0], "ring")
        for k in (1, 2, 3):
            for size in range(k, DGX1.gpus + 1):
                masks = subsets(DGX1.gpus, size)
                one_by_one = [
                    next(iter(_of_size(tables, k, size, masks[at : at + 1], objective)))
                    for at in range(len(masks))
                ]
                assert best_sets(tables, k, masks.tolist(), objective) == one_by_one


def test_large_nodes_take_the_room_of_many_small_ones(monkeypatch):
    monkeypatch.setattr(kept_module, "_LEAST_SETS", 1 << 14)
    kept: Kept[int] = Kept(2)
    for at in range(9):
        kept.get(at, 8, lambda at=at: at)
    assert kept.values() == [*range(1, 9)]
    kept.get("large", 16, lambda: 100)
    assert kept.values() == [5, 6, 7, 8, 100]
    assert kept.get(5, 8, lambda: -1) == 5
    kept.clear()
    assert kept.values() == []
    assert np.all([kept.get(at, 16, lambda at=at: at) == at for at in range(3)])
