"""Sets of GPUs that are as good as the best, and their rails, for each mask of free GPUs."""

from __future__ import annotations

from policies.matching.choice import Choice
from policies.scoring.node_tables import NodeTables
from policies.scoring.objectives import Objective
from policies.scoring.rails import EqualSets, Rails

#: Masks, and sets in them, that are remembered; some 2 KB each at most.
REMEMBERED = 1024
#: Sets of one mask that are looked at: all there are of eight GPUs, the first of 12,870 of sixteen.
MOST_SETS = 128


class Offers:
    """What the nodes of one kind offer jobs that take so many GPUs of each."""

    def __init__(
        self,
        tables: NodeTables,
        k: int,
        objective: Objective,
        rails: Rails,
        sharp: frozenset[int] = frozenset(),
    ) -> None:
        """`rails` has the rail of each GPU, `sharp` those whose switches reduce."""
        self._tables, self._k, self._objective, self._rails = tables, k, objective, rails
        self._sharp = sharp
        self._by_mask: dict[int, EqualSets] = {}
        #: Few sets are in many masks.
        self._rails_of: dict[int, Rails] = {}
        self._choices: dict[tuple[int, int], Choice] = {}

    def of(self, free: int) -> EqualSets:
        """The equally good sets within these free GPUs (at least as many as are taken)."""
        offer = self._by_mask.get(free)
        if offer is None:
            if len(self._by_mask) >= REMEMBERED:
                self._by_mask.clear()
            masks, best = self._tables.equals(self._k, free, self._objective, MOST_SETS)
            rails = tuple(map(self._of_set, masks))
            reducing = frozenset(filter(self._sharp.issuperset, rails if self._sharp else ()))
            offer = self._by_mask[free] = EqualSets(masks, rails, rails[:best], reducing)
        return offer

    def _of_set(self, mask: int) -> Rails:
        """The rails of a set, in the order of its GPUs."""
        rails = self._rails_of.get(mask)
        if rails is None:
            rails = tuple(rail for gpu, rail in enumerate(self._rails) if mask >> gpu & 1)
            self._rails_of[mask] = rails
        return rails

    def choice(self, free: int, mask: int) -> Choice:
        """What one of these sets is worth."""
        choice = self._choices.get((free, mask))
        if choice is None:
            if len(self._choices) >= REMEMBERED:
                self._choices.clear()
            choice = self._tables.choice(self._k, free, mask, self._objective)
            self._choices[free, mask] = choice
        return choice
