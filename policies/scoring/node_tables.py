"""What every GPU set of one kind of node is worth, for one pattern (at most 16 GPUs).

A 16-GPU node has 65,536 sets over all sizes: 24 bytes each, plus 1 MB by free mask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from gres_topology import NodeTopology
from policies.bandwidth.model import left_of, model_for
from policies.contract.bits import Floats, Ints, gpus_of, mask_of, members, rows_of, subsets
from policies.contract.demand import Shares
from policies.matching.choice import Choice
from policies.matching.links import MB_PER_GB, inside, link_mbps, widths
from policies.matching.solved import solved
from policies.patterns.pattern import fitting, pattern_of
from policies.scoring.objectives import Objective, Scored, ideal_share
from policies.scoring.rank_order import rank_order

#: Demands remembered per table (0.5 MB each for 16 GPUs): none known, and the site's.
FUTURES = 3
#: Rank orders remembered per table, some 0.3 KB each.
ORDERS = 4096


@dataclass(frozen=True)
class SetTable:
    """Every k-subset of one kind of node, row i = row i of `members(gpus, k)`."""

    masks: Ints
    #: The narrowest link of each set's widest matching, MB/s.
    weakest: Ints
    #: Effective bandwidth by the model of that name, GB/s.
    effbw: Floats
    model: str
    #: Computes `agg`, when it is asked for: what later jobs lose needs no sums.
    sums: Callable[[], Ints]

    @cached_property
    def agg(self) -> Ints:
        """The largest sum of links of every set, MB/s."""
        return self.sums()

    def size_bytes(self) -> int:
        """Memory of the arrays this table is made of; the masks are shared."""
        known = vars(self).get("agg")
        return self.weakest.nbytes + self.effbw.nbytes + (0 if known is None else known.nbytes)

    @cached_property
    def ideal_effbw_gbps(self) -> float:
        """The best any set of this size reaches on the empty node."""
        return float(self.effbw.max())

    @cached_property
    def ideal_weakest(self) -> int:
        """The widest weakest link of any set of this size, MB/s."""
        return int(self.weakest.max())

    @cached_property
    def ideal_agg(self) -> int:
        """The largest sum of links of any set of this size, MB/s."""
        return int(self.agg.max())


def share_of(values: Floats | Ints, ideal: float) -> Floats:
    """Values over their ideal, in [0, 1]; 1 where there is nothing to gain (ideal 0)."""
    if ideal <= 0:
        return np.ones(len(values))
    shares: Floats = np.clip(values / ideal, 0.0, 1.0)
    return shares


def columns(scored: Scored, objective: Objective) -> list[Floats | Ints]:
    """What sets are compared by, in order, larger first."""
    keys = objective.keys(scored)
    return keys if scored.nic is None else [keys[0], -scored.nic, *keys[1:]]


class NodeTables:
    """All tables of one kind of node and one pattern (at most `EXACT_GPUS` GPUs)."""

    def __init__(
        self,
        topology: NodeTopology,
        pattern: str,
        others: Callable[[NodeTopology, str], NodeTables] | None = None,
    ) -> None:
        """`others` gives the tables of the same node without what is impaired on it."""
        self.topology, self.pattern = topology, pattern_of(pattern).name
        self._others = others or NodeTables
        self.weights = link_mbps(topology)
        self._widths = widths(self.weights)
        self._sets: dict[int, SetTable] = {}
        self._futures: dict[Shares, Floats] = {}
        #: The best sets of masks (`best_sets`).
        self.best: dict[Hashable, Floats] = {}
        #: What was scored last: who asks for the first set may go on to ask for the next ones.
        self._last: tuple[tuple[int, int], Objective, tuple[Ints, Scored]] | None = None
        #: Rank orders by set and what the objective prefers.
        self._orders: dict[tuple[int, str], tuple[int, ...]] = {}
        #: Held for a moment only: never while something is computed.
        self._lock = threading.Lock()

    @cached_property
    def _parts(self) -> Ints:
        """The NUMA nodes' GPUs (masks) of a node whose links are all alike; else none."""
        parts: dict[int | None, int] = {}
        for gpu, part in enumerate(self.topology.numa):
            parts[part] = parts.get(part, 0) | 1 << gpu
        is_even = len(self._widths) == 1 and None not in parts
        return np.array([*parts.values()] if is_even else [], dtype=np.int64)

    def _left_in_parts(self, masks: Ints, free: int) -> Ints:
        """How many GPUs stay free in the parts that each set has a GPU of: whole parts are kept."""
        stays = free & ~masks[:, None] & self._parts
        counts = ((stays[:, :, None] >> np.arange(self.topology.gpus)) & 1).sum(axis=2)
        left: Ints = (counts * ((masks[:, None] & self._parts) != 0)).sum(axis=1)
        return left

    @cached_property
    def _links(self) -> list[list[int]]:
        """The links, MB/s: a number of a list is had sooner than one of an array."""
        links: list[list[int]] = self.weights.tolist()
        return links

    @cached_property
    def inside(self) -> Ints:
        """Bandwidth left inside every mask, MB/s."""
        return inside(self.weights)

    def sets(self, k: int) -> SetTable:
        """The table of k-subsets, 1 <= k <= GPUs of the node."""
        if k not in self._sets:
            weakest = self._weakest(k)
            effbw, model = self._effbw(k, weakest)
            masks = subsets(self.topology.gpus, k)
            self._sets[k] = SetTable(masks, weakest, effbw, model, partial(self._agg, k))
        return self._sets[k]

    def _effbw(self, k: int, weakest: Ints) -> tuple[Floats, str]:
        """Every k-subset's effective bandwidth, GB/s, and the model that says so."""
        pattern, healthy = pattern_of(fitting(self.pattern, k)).judged_as, self.topology.healthy
        if healthy is None:
            model = model_for(self.topology, pattern, k)
            return model.effbw_gbps(self.topology, k, weakest), model.name
        whole = self._others(healthy, self.pattern).sets(k)
        left = left_of(self.topology, pattern, k, weakest, (healthy, whole.weakest))
        return whole.effbw * left, whole.model

    def _weakest(self, k: int) -> Ints:
        """Widest weakest link of every k-subset, MB/s."""
        count = len(subsets(self.topology.gpus, k))
        if k == 1 or len(self._widths) == 1:
            return np.full(count, 0 if k == 1 else self._widths[0], dtype=np.int64)
        return solved.widest(fitting(self.pattern, k), self.weights).sums(k)

    def _agg(self, k: int) -> Ints:
        """Best sum of every k-subset, MB/s."""
        count = len(subsets(self.topology.gpus, k))
        pattern = fitting(self.pattern, k)
        if k == 1 or len(self._widths) == 1:
            edges = len(pattern_of(pattern).edges(k))
            return np.full(count, 0 if k == 1 else edges * self._widths[0], dtype=np.int64)
        return solved.sums(pattern, self.weights).sums(k)

    def size_bytes(self) -> int:
        """Memory of what has been computed so far."""
        # Copies: other threads compute meanwhile.
        kept = [array for array in [*vars(self).values()] if isinstance(array, np.ndarray)]
        tables_bytes = sum(table.size_bytes() for table in [*self._sets.values()])
        kept += [*self._futures.values(), *self.best.values()]
        return tables_bytes + sum(column.nbytes for column in kept)

    def future_of(self, demand: Shares) -> Floats:
        """What a set of free GPUs is worth to jobs still to come, in [0, 1], shape (2**gpus,).

        The mean, weighted by `demand`, of the best share of ideal effective bandwidth that
        each size would find there (0 where it does not fit). Sizes larger than the node are
        left out; where nothing is known, the sizes 2 to half the node and one more count alike.
        """
        n = self.topology.gpus
        usual = tuple((k, share) for k, share in demand if k <= n)
        if not usual:
            usual = tuple((k, 1.0) for k in range(2, min(n, n // 2 + 1) + 1))
        future = self._futures.get(usual)
        if future is None:
            future = self._future(usual)
            with self._lock:
                self._futures[usual] = future
                if len(self._futures) > FUTURES:
                    del self._futures[next(iter(self._futures))]
        return future

    def _future(self, usual: Shares) -> Floats:
        total = np.zeros(1 << self.topology.gpus)
        for k, share in usual:
            table = self.sets(k)
            best = np.zeros(len(total), dtype=np.float32)  # half the memory to go through
            best[table.masks] = share_of(table.effbw, table.ideal_effbw_gbps)
            for gpu in range(self.topology.gpus):
                pairs = best.reshape(-1, 2, 1 << gpu)
                np.maximum(pairs[:, 1], pairs[:, 0], out=pairs[:, 1])
            total += share * best
        return total / max(sum(share for _, share in usual), 1e-9)

    def score(self, k: int, free: int, objective: Objective) -> tuple[Ints, Scored]:
        """The k-subsets of `free` (row numbers of `sets(k)`) and what is known of each."""
        last = self._last
        if last is not None and last[0] == (k, free) and last[1] is objective:
            return last[2]
        rows = np.flatnonzero((self.sets(k).masks & ~np.int64(free)) == 0)
        found = rows, self.scored(k, rows, np.full(len(rows), free), objective)
        self._last = (k, free), objective, found
        return found

    def scored(self, k: int, rows: Ints, free: Ints, objective: Objective) -> Scored:
        """What is known of k-subsets (row numbers), each within free GPUs of its own (masks)."""
        table = self.sets(k)
        left = free & ~table.masks[rows]
        future = self.future_of(objective.demand) if objective.looks_ahead else None
        broken = np.zeros(len(rows), dtype=np.int64)
        if k == 1:
            stays = (left[:, None] >> np.arange(self.topology.gpus)) & 1
            broken = (self.weights[members(self.topology.gpus, 1)[rows, 0]] * stays).max(axis=1)
        return Scored(
            k=k,
            share=share_of(table.effbw[rows], table.ideal_effbw_gbps),
            wide_share=share_of(table.weakest[rows], table.ideal_weakest),
            agg_share=share_of(table.agg[rows], float(table.ideal_agg)),
            effbw_gbps=table.effbw[rows],
            agg=table.agg[rows],
            preserved=self.inside[left],
            broken=broken,
            loss=None if future is None else future[free] - future[left],
            nic=self._to_nics(k, rows, objective.nic_distance),
        )

    def _to_nics(self, k: int, rows: Ints, nic_distance: tuple[int, ...]) -> Ints | None:
        """How far from NICs each set is, all its GPUs together; None where it is not asked."""
        if not nic_distance:
            return None
        far: Ints = np.array(nic_distance)[members(self.topology.gpus, k)[rows]].sum(axis=1)
        return far

    def top(self, k: int, free: int, objective: Objective, count: int) -> tuple[Choice, ...]:
        """The best `count` sets in `free`, best first.

        Where all links are alike ties keep NUMA nodes whole; then they go to the lowest ids.
        """
        rows, scored, ranked = self._ranked(k, free, objective, count)
        return tuple(
            self._choice(k, free, int(rows[at]), int(at), scored, objective) for at in ranked
        )

    def top_sets(
        self, k: int, free: int, objective: Objective, count: int
    ) -> list[tuple[int, float, int]]:
        """Of `top` the masks, shares of the ideal and weakest links (MB/s)."""
        rows, scored, ranked = self._ranked(k, free, objective, count)
        table, first = self.sets(k), rows[ranked]
        known = (table.masks[first], scored.share[ranked], table.weakest[first])
        return list(zip(*(column.tolist() for column in known), strict=True))

    def _ranked(
        self, k: int, free: int, objective: Objective, count: int
    ) -> tuple[Ints, Scored, Ints]:
        """The k-subsets of `free`, what is known of each, and which are the best, best first."""
        rows, scored = self.score(k, free, objective)
        keys = columns(scored, objective)
        if len(self._parts):
            keys = [*keys, -self._left_in_parts(self.sets(k).masks[rows], free)]
        first = keys[0]
        if len(first) > 4 * count:
            cut = np.partition(first, len(first) - count)[len(first) - count]
            kept = np.flatnonzero(first >= cut)
        else:
            kept = np.arange(len(first))
        return rows, scored, kept[np.lexsort([-key[kept] for key in reversed(keys)])][:count]

    def equals(
        self, k: int, free: int, objective: Objective, most: int
    ) -> tuple[tuple[int, ...], int]:
        """The sets (masks) in `free` that are as good for the job as the best, in `top`'s order.

        `most` at most; with how many of them leave NUMA nodes as whole as the best.
        """
        rows, scored = self.score(k, free, objective)
        among = np.ones(len(rows), dtype=np.bool_)
        for key in columns(scored, objective):
            there = np.where(among, key, -np.inf)
            among = there == there.max()
        masks = self.sets(k).masks[rows[among]]
        if not len(self._parts):
            return tuple(masks[:most].tolist()), min(most, len(masks))
        left = self._left_in_parts(masks, free)
        order = np.argsort(left, kind="stable")
        whole = int((left == left.min()).sum())
        return tuple(masks[order[:most]].tolist()), min(most, whole)

    def choice(self, k: int, free: int, mask: int, objective: Objective) -> Choice:
        """What one set of k GPUs is worth within `free`."""
        rows = np.flatnonzero(self.sets(k).masks == mask)
        scored = self.scored(k, rows, np.array([free]), objective)
        return self._choice(k, free, int(rows[0]), 0, scored, objective)

    def _order(self, mask: int, weakest: int, prefers: str) -> tuple[int, ...]:
        """A set's rank order, whichever other GPUs are free."""
        order = self._orders.get((mask, prefers))
        if order is None:
            order = rank_order(self.topology, self.pattern, gpus_of(mask), weakest, prefers)
            if len(self._orders) >= ORDERS:
                self._orders.clear()
            self._orders[mask, prefers] = order
        return order

    def worth(self, order: tuple[int, ...], free: int, ideal: float) -> Choice:
        """What GPUs in that rank order are worth within `free`; `ideal` is the best of so many."""
        k, mask = len(order), mask_of(order)
        table = self.sets(k)
        row = rows_of(self.topology.gpus)[mask]
        effbw, links = float(table.effbw[row]), self._links
        share = ideal_share(effbw, ideal)
        used = sum(links[order[a]][order[b]] for a, b in pattern_of(self.pattern).edges(k))
        return Choice(
            mask,
            order,
            share,
            effbw,
            used / MB_PER_GB,
            preserved_gbps=int(self.inside[free & ~mask]) / MB_PER_GB,
            weakest_gbps=int(table.weakest[row]) / MB_PER_GB,
            share=share,
        )

    def _choice(
        self, k: int, free: int, row: int, at: int, scored: Scored, objective: Objective
    ) -> Choice:
        table = self.sets(k)
        mask = int(table.masks[row])
        order = self._order(mask, int(table.weakest[row]), objective.prefers)
        links, edges = self._links, pattern_of(fitting(self.pattern, k)).edges(k)
        used = sum(links[order[a]][order[b]] for a, b in edges)
        preserved = int(scored.preserved[at])
        return Choice(
            mask=mask,
            order=order,
            score=float(objective.score(scored)[at]),
            effbw_gbps=float(table.effbw[row]),
            agg_gbps=used / MB_PER_GB,
            preserved_gbps=preserved / MB_PER_GB,
            weakest_gbps=int(table.weakest[row]) / MB_PER_GB,
            share=float(scored.share[at]),
            wide_share=float(scored.wide_share[at]),
            loss=0.0 if scored.loss is None else float(scored.loss[at]),
            broken_gbps=int(scored.broken[at]) / MB_PER_GB,
            destroyed_gbps=(int(self.inside[free]) - preserved) / MB_PER_GB,
        )
