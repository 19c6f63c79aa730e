"""One future, played: who waits starts in Slurm's order as GPUs come free.

A question plays some twenty of these while slurmctld waits, hence numbers for nodes, and lists that
are changed in place. `World` (`futures`) makes what is played.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import NamedTuple

from policies.contract.hint_keys import USUAL_COMMUNICATION
from policies.contract.nouns import WaitingJob
from policies.contract.ranking import Key
from policies.horizon.communication import run_s

#: Starts that are looked at.
STARTS = 6
#: Jobs behind the first one that waits that backfill may start.
DEEP = 8
#: No node.
NOWHERE = -1

#: GPUs that come free: when (seconds), the node's number, which (mask), how many.
End = tuple[float, int, int, int]


class Best(NamedTuple):
    """What mapa takes on a node in one state."""

    mask: int
    #: What the job gains there, a share of its ideal (`gain`).
    gain: float
    #: Of the ideal bandwidth.
    share: float
    #: By what nodes are compared, smaller first.
    key: Key


class WantedPart(NamedTuple):
    """What a waiting job wants of one node."""

    job: WaitingJob
    gpus: int
    #: What is known of its choices, by kind of node and what is free there (mask).
    known: Sequence[dict[int, Best]]
    weight: float
    #: What share of its time it communicates.
    communication: float = USUAL_COMMUNICATION


#: How many GPUs a part wants, how long it runs in a future (seconds), and the part.
Waits = tuple[int, float, WantedPart]


class Later(NamedTuple):
    """The better GPUs that a job may wait for, in one future."""

    in_s: float
    #: How much sooner the job ends with them than with what is free now (seconds).
    saved_s: float
    #: The node's number.
    node: int
    mask: int
    share: float


def _least(left: Sequence[Waits]) -> int:
    """The fewest GPUs that the first or one who may pass it wants."""
    return min([gpus for gpus, _, _ in left[: 1 + DEEP]])


class PlayedFuture:
    """One future while it is played."""

    __slots__ = ("_at", "_counts", "_ends", "_find", "_free", "_kind_of", "_most", "_weights",
                 "at_once", "next_mask", "now_s", "starts", "worth")  # fmt: skip

    def __init__(
        self,
        free: list[int],
        ends: list[End],
        kind_of: Sequence[int],
        find: Callable[[WantedPart, int, int], Best],
        weights: Sequence[int] | None,
    ) -> None:
        """`free` GPUs (mask) by node, and the `ends` in their order: both are changed.

        `kind_of` has the kind of each node, as parts know it.
        `find` gives what a part's `known` lacks; `weights` are None where all nodes' are alike.
        """
        self._free, self._ends, self._kind_of = free, ends, kind_of
        self._find, self._weights = find, weights
        #: How many GPUs are free, by node; and the most: larger parts need not be tried.
        self._counts = [mask.bit_count() for mask in free]
        self._most = max(self._counts, default=0)
        #: The first of the ends that is to come.
        self._at = 0
        self.now_s = self.worth = 0.0
        self.starts = self.next_mask = 0
        #: What starts before anything comes free, by identity.
        self.at_once: list[int] = []

    def play(self, waits: Sequence[Waits], own: int, backfill: bool) -> None:
        """Start who waits, in order, until enough is seen or nothing more comes free.

        `own` is the job's node: the first start there is told of.
        """
        # The fewest GPUs that the first or one who may pass it wants, when so many were left.
        left, least, known = list(waits), 0, 0
        while left and self.starts < STARTS:
            gpus, lasts_s, part = left[0]
            if gpus <= self._most:
                # Some node has room.
                self._try(part, lasts_s, own)
                del left[0]
                continue
            if self._at == len(self._ends):
                return
            if known != len(left):
                known, least = len(left), _least(left) if backfill else gpus
            if least <= self._most:
                self._pass(left, own)
                self._end()
            else:
                self._end(least)

    def wait(
        self,
        waits: Sequence[Waits],
        own: WantedPart,
        ideal_s: float,
        share: float,
        among: Collection[int],
        longest_s: float,
        backfill: bool,
        before: int = 0,
    ) -> Later | None:
        """Let the others start while one job waits: when does it end the soonest?

        Others take what it leaves now. Whenever GPUs come free the first `before` go first, as in
        Slurm, then the job, then the others.
        """
        communication = own.communication
        found: Later | None = None
        left, now_s = list(waits), run_s(ideal_s, communication, share)
        while True:
            while left and left[0][0] <= self._most:
                self._next(left)
                before -= before > 0
            if left and backfill and _least(left) <= self._most:
                before = self._pass(left, NOWHERE, before)
            is_over = self._at == len(self._ends) or self._ends[self._at][0] > longest_s
            if is_over or self.starts >= STARTS:
                return found
            self._end()
            while before and left[0][0] <= self._most:
                self._next(left)
                before -= 1
            if self._most < own.gpus:
                continue
            its = [count if at in among else 0 for at, count in enumerate(self._counts)]
            some = self._best(own, its)
            if some is None or some[1].share <= share:
                continue
            node, best = some
            saved_s = now_s - self.now_s - run_s(ideal_s, communication, best.share)
            if found is None or saved_s > found.saved_s:
                found = Later(self.now_s, saved_s, node, best.mask, best.share)

    def _next(self, left: list[Waits]) -> None:
        """The first one, for which there is room, starts."""
        _, lasts_s, part = left[0]
        self._try(part, lasts_s, NOWHERE)
        del left[0]

    def _end(self, least: int = 0) -> None:
        """The next GPUs come free, until a node has the least that somebody wants."""
        ends, free, counts, most = self._ends, self._free, self._counts, self._most
        at, end = self._at, len(ends)
        while at < end:
            self.now_s, node, mask, _ = ends[at]
            at += 1
            now = free[node] = free[node] | mask
            count = counts[node] = now.bit_count()
            if count > most:
                most = count
            if most >= least:
                break
        self._at, self._most = at, most

    def _best(
        self, part: WantedPart, counts: Sequence[int], without: int = NOWHERE
    ) -> tuple[int, Best] | None:
        """The node where a part would go now and its set; None where no node has room."""
        _, gpus, known, _, _ = part
        free, weights, kind_of = self._free, self._weights, self._kind_of
        found, first = NOWHERE, None
        for node, count in enumerate(counts):
            if count < gpus or node == without:
                continue
            state = free[node]
            best = known[kind_of[node]].get(state) or self._find(part, node, state)
            if first is not None:
                if weights is not None and weights[node] != weights[found]:
                    if weights[node] > weights[found]:
                        continue
                elif best is first or best.key >= first.key:
                    continue
            found, first = node, best
        return None if first is None else (found, first)

    def _try(self, part: WantedPart, lasts_s: float, own: int, without: int = NOWHERE) -> bool:
        """Start it now if a node has room."""
        found = self._best(part, self._counts, without)
        if found is None:
            return False
        node, (mask, gain, _, _) = found
        _, gpus, _, weight, _ = part
        self._free[node] ^= mask
        counts = self._counts
        before = counts[node]
        counts[node] = before - gpus
        if before == self._most:
            self._most = max(counts)
        insort(self._ends, (self.now_s + lasts_s, node, mask, gpus), self._at)
        self.worth += gain * weight
        self.starts += 1
        if not self._at:
            self.at_once.append(id(part))
        if node == own and not self.next_mask:
            self.next_mask = mask
        return True

    def _pass(self, left: list[Waits], own: int, before: int = 0) -> int:
        """Backfill: who ends before the first one starts, or takes another node than it will.

        Returns how many of the first `before` are left.
        """
        starts_s, promised = self._promise(left[0][0])
        now_s, at, end = self.now_s, 1, min(len(left), 1 + DEEP)
        while at < end and self._most:
            gpus, lasts_s, part = left[at]
            if gpus <= self._most and self._try(
                part, lasts_s, own, NOWHERE if now_s + lasts_s <= starts_s else promised
            ):
                del left[at]
                before -= at < before
                end = min(len(left), 1 + DEEP)
            else:
                at += 1
        return before

    def _promise(self, count: int) -> tuple[float, int]:
        """When and where so many GPUs are free at the earliest."""
        free = self._counts[:]
        for at_s, node, _, gpus in islice(self._ends, self._at, None):
            now = free[node] = free[node] + gpus
            if now >= count:
                return at_s, node
        return float("inf"), NOWHERE
