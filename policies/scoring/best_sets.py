"""The best set of many nodes' free GPUs at once, as far as nodes are compared by it.

`NodeTables.top` knows everything about the best sets of one mask; this is what it says of the best
alone, for hundreds of masks in the time of a few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb
from typing import NamedTuple

import numpy as np

from policies.contract.bits import Floats, Ints, members, rows_of, subsets
from policies.matching.choice import Choice
from policies.matching.links import MB_PER_GB
from policies.scoring.node_tables import NodeTables, columns
from policies.scoring.objectives import Objective

#: Sets looked at in one step: some 50 MB of columns.
_AT_ONCE = 300_000
#: Where all masks of a size have no more sets than that together, they are looked at once and for
#: all: it takes hardly longer than to look at one of them.
_ALL_MASKS = 4096
#: How often that is remembered of one kind of node, some 4 KB each.
_REMEMBERED = 256


class BestSet(NamedTuple):
    """The best set of one mask; fields as those of `Choice`."""

    effbw_gbps: float
    weakest_gbps: float
    #: The largest sum of links of any matching of the set.
    agg_gbps: float
    loss: float
    broken_gbps: float
    destroyed_gbps: float
    #: How far from NICs its GPUs are, all together.
    nic: int
    #: The set itself; where all links are alike, one as good for the job as that of `top`.
    mask: int


def as_best(choice: Choice, nic_distance: tuple[int, ...]) -> BestSet:
    """A choice as a `BestSet`; `nic_distance` is an Objective's."""
    nic = sum(nic_distance[gpu] for gpu in choice.order) if nic_distance else 0
    widths = (choice.effbw_gbps, choice.weakest_gbps, choice.agg_gbps)
    lost = (choice.loss, choice.broken_gbps, choice.destroyed_gbps)
    return BestSet(*widths, *lost, nic, choice.mask)


def best_sets(
    tables: NodeTables, k: int, frees: Sequence[int], objective: Objective
) -> list[BestSet]:
    """The best k-subset of each mask, all of which have k GPUs or more, in their order."""
    best: dict[int, BestSet] = {}
    by_size: dict[int, list[int]] = {}
    for free in set(frees):
        by_size.setdefault(free.bit_count(), []).append(free)
    for size, masks in by_size.items():
        gpus = tables.topology.gpus
        if comb(gpus, size) * comb(size, k) <= _ALL_MASKS:
            known = _known(tables, k, size, objective)
            rows = rows_of(gpus)
            best.update((mask, _from_row(known[rows[mask]].tolist())) for mask in masks)
            continue
        step = max(1, _AT_ONCE // len(members(size, k)))
        for at in range(0, len(masks), step):
            some = np.array(masks[at : at + step], dtype=np.int64)
            best.update(zip(some.tolist(), _of_size(tables, k, size, some, objective), strict=True))
    return [best[free] for free in frees]


def _from_row(row: list[float]) -> BestSet:
    *widths, nic, mask = row
    return BestSet._make((*widths, int(nic), int(mask)))


def _known(tables: NodeTables, k: int, size: int, objective: Objective) -> Floats:
    """The best set of every mask of that size, a row each, as `subsets` has them."""
    key = (k, size, objective.name, objective.demand, objective.nic_distance)
    known = tables.best.get(key)
    if known is None:
        masks = subsets(tables.topology.gpus, size)
        known = np.array(list(_of_size(tables, k, size, masks, objective)), dtype=np.float64)
        if len(tables.best) >= _REMEMBERED:
            tables.best.clear()
        tables.best[key] = known
    return known


def _of_size(
    tables: NodeTables, k: int, size: int, frees: Ints, objective: Objective
) -> Iterator[BestSet]:
    """For masks of `size` GPUs each."""
    gpus = tables.topology.gpus
    held = (frees[:, None] >> np.arange(gpus)) & 1
    ids = np.nonzero(held)[1].reshape(len(frees), size)
    # The sets of each mask in lexicographic order, as the rows of a table are.
    masks = (np.int64(1) << ids[:, members(size, k)]).sum(axis=2)
    shape = masks.shape
    rows = rows_of(gpus)[masks].ravel().astype(np.int64)
    free = np.repeat(frees, shape[1])
    scored = tables.scored(k, rows, free, objective)
    chosen = np.arange(len(frees)) * shape[1] + _first_best(
        [np.asarray(key, dtype=np.float64).reshape(shape) for key in columns(scored, objective)]
    )
    table, row = tables.sets(k), rows[chosen]
    zeros = np.zeros(len(chosen))
    picked = (
        table.effbw[row],
        table.weakest[row] / MB_PER_GB,
        table.agg[row] / MB_PER_GB,
        zeros if scored.loss is None else scored.loss[chosen],
        scored.broken[chosen] / MB_PER_GB,
        (tables.inside[frees] - scored.preserved[chosen]) / MB_PER_GB,
        zeros.astype(np.int64) if scored.nic is None else scored.nic[chosen],
        table.masks[row],
    )
    return map(BestSet._make, zip(*(column.tolist() for column in picked), strict=True))


def _first_best(keys: Sequence[Floats]) -> Ints:
    """Of each row of the columns (masks, sets) the first that is best by all, in turn."""
    among = np.ones(keys[0].shape, dtype=np.bool_)
    for key in keys:
        there = np.where(among, key, -np.inf)
        among = there == there.max(axis=1, keepdims=True)
    first: Ints = among.argmax(axis=1)
    return first
