"""Sets of GPUs that are as good as the best, and their rails, for each mask of free GPUs."""

from __future__ import annotations

from policies.matching.choice import Choice
from policies.scoring.node_tables import NodeTables
from policies.scoring.objectives import Objective
from policies.scoring.rails import Offer, Rails, offer_of

#: Masks, and sets in them, that are remembered; some 2 KB each at most.
REMEMBERED = 4096


class Offers:
    """What the nodes of one kind offer jobs that take so many GPUs of each."""

    def __init__(self, tables: NodeTables, k: int, objective: Objective, rails: Rails) -> None:
        self._tables, self._k, self._objective, self._rails = tables, k, objective, rails
        self._by_mask: dict[int, Offer] = {}
        self._choices: dict[tuple[int, int], Choice] = {}

    def of(self, free: int) -> Offer:
        """The equally good sets within these free GPUs (at least as many as are taken)."""
        offer = self._by_mask.get(free)
        if offer is None:
            if len(self._by_mask) >= REMEMBERED:
                self._by_mask.clear()
            masks, best = self._tables.equals(self._k, free, self._objective)
            offer = self._by_mask[free] = offer_of(masks, best, self._rails)
        return offer

    def choice(self, free: int, mask: int) -> Choice:
        """What one of these sets is worth."""
        choice = self._choices.get((free, mask))
        if choice is None:
            if len(self._choices) >= REMEMBERED:
                self._choices.clear()
            choice = self._tables.choice(self._k, free, mask, self._objective)
            self._choices[free, mask] = choice
        return choice
