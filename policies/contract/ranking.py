"""Places by their state, ranked: a question costs what changed, not what there is.

A place is a number from 0 (a node's, in the order of names); a set of places is an int with bit i
for place i, so that thousands of places are compared in one step. Places in equal states are never
looked at one by one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

#: By what states are ranked: smaller is better.
Key = tuple[float, ...]

State = TypeVar("State", bound=Hashable)

#: Keys of several states, in their order; None for a state that is out of the question.
Keys = Callable[[list[State]], list[Key | None]]

#: Rankings kept by an index, the last ones asked for. Each holds a set of places for each key.
KEPT = 64
#: Of these the last ones asked for are brought forward between questions.
AHEAD = 32


def lowest(places: int) -> int:
    """The first place of a set that is not empty."""
    return (places & -places).bit_length() - 1


def each(places: int) -> Iterator[int]:
    """The places of a set, ascending."""
    while places:
        low = places & -places
        yield low.bit_length() - 1
        places ^= low


class StateIndex(Generic[State]):
    """Which place is in which state, and what changed since somebody looked."""

    def __init__(self, states: Iterable[State]) -> None:
        # One object for all places in a state: there are few, and many places.
        same: dict[State, State] = {}
        self._states = [same.setdefault(state, state) for state in states]
        self._places: dict[State, int] = dict.fromkeys(same, 0)
        for place, state in enumerate(self._states):
            self._places[state] |= 1 << place
        #: Changes kept at least: whoever is further behind looks at all states anew.
        self._most = max(64, len(self._states))
        #: (place, state before, state after); `_forgotten` of them were dropped.
        self._changes: list[tuple[int, State, State]] = []
        self._forgotten = 0
        #: The last ones asked for, with what ranks them.
        self._rankings: OrderedDict[Hashable, tuple[Ranking[State], Keys[State]]] = OrderedDict()

    def __getitem__(self, place: int) -> State:
        return self._states[place]

    def __iter__(self) -> Iterator[State]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def places(self, state: State) -> int:
        """The places in this state."""
        return self._places.get(state, 0)

    def within(self, places: int) -> list[tuple[State, int]]:
        """The states that some of these places are in, with those places."""
        return [(state, here) for state, some in self._places.items() if (here := some & places)]

    def states(self) -> Collection[State]:
        """The states that some place is in."""
        return self._places.keys()

    def move(self, place: int, state: State) -> None:
        """A place is in this state now."""
        old = self._states[place]
        if old == state:
            return
        bit = 1 << place
        left = self._places[old] ^ bit
        if left:
            self._places[old] = left
        else:
            del self._places[old]
        self._places[state] = self._places.get(state, 0) | bit
        self._states[place] = state
        self._changes.append((place, old, state))
        if len(self._changes) > 2 * self._most:
            del self._changes[: -self._most]
            self._forgotten += self._most + 1

    def changes_since(self, moment: int) -> list[tuple[int, State, State]] | None:
        """(place, state before, state after) since `moment`; None where that is too long ago."""
        at = moment - self._forgotten
        return None if at < 0 else self._changes[at:]

    @property
    def moment(self) -> int:
        """How many changes there were."""
        return self._forgotten + len(self._changes)

    def ranking(self, kind: Hashable, keys: Keys[State]) -> Ranking[State]:
        """The states ranked by `keys`, up to date; remembered under `kind` unless it is None.

        Equal kinds have keys that are equal for equal states, at any time. Where `keys` holds no
        table, a table that nobody uses any more is gone at once, and the garbage collector, for
        which all questions wait, need not look for it.
        """
        if kind is None:
            return Ranking(self, keys)
        known = self._rankings.get(kind)
        if known is None:
            ranking = Ranking(self, keys)
            self._rankings[kind] = ranking, keys
            if len(self._rankings) > KEPT:
                self._rankings.popitem(last=False)
            return ranking
        self._rankings.move_to_end(kind)
        known[0].update(self, keys)
        return known[0]

    def catch_up(self, most: int) -> bool:
        """Bring one ranking forward by `most` changes, the last one asked for first.

        So the next question of its kind has less to do. False where all are up to date.
        """
        for ranking, keys in islice(reversed(self._rankings.values()), AHEAD):
            if ranking.moment < self.moment:
                ranking.update(self, keys, most)
                return True
        return False


class Ranking(Generic[State]):
    """Sets of places by the key of their state, the best key first; it holds no index."""

    def __init__(self, index: StateIndex[State], keys: Keys[State]) -> None:
        self._key_of: dict[State, Key | None] = {}
        self._gather(index, keys)

    def _gather(self, index: StateIndex[State], keys: Keys[State]) -> None:
        """From all states, of which those that are known keep their keys."""
        self._places: dict[Key, int] = {}
        self._learn(index.states(), keys)
        for state in index.states():
            key = self._key_of[state]
            if key is not None:
                self._places[key] = self._places.get(key, 0) | index.places(state)
        self._order = sorted(self._places)
        #: The index's moment that it has come to.
        self.moment = index.moment

    def _learn(self, states: Iterable[State], keys: Keys[State]) -> None:
        new = [state for state in states if state not in self._key_of]
        if new:
            self._key_of.update(zip(new, keys(new), strict=True))

    def update(self, index: StateIndex[State], keys: Keys[State], most: int | None = None) -> None:
        """Take over what changed in the index, or the first `most` of the changes."""
        if self.moment == index.moment:
            return
        changes = index.changes_since(self.moment)
        if len(self._key_of) > 4 * max(64, len(index)):
            known = self._key_of
            self._key_of = {state: known[state] for state in index.states() if state in known}
            changes = None
        if changes is None or len(changes) > len(index.states()):
            self._gather(index, keys)
            return
        changes = changes[:most]
        known = self._key_of
        self._learn({state for _, _, state in changes}, keys)
        for place, old, new in changes:
            before, after = known[old], known[new]
            if before != after:
                if before is not None:
                    self._drop(before, 1 << place)
                if after is not None:
                    self._add(after, 1 << place)
        self.moment += len(changes)

    def _add(self, key: Key, bit: int) -> None:
        places = self._places.get(key)
        if places is None:
            insort(self._order, key)
        self._places[key] = (places or 0) | bit

    def _drop(self, key: Key, bit: int) -> None:
        left = self._places[key] ^ bit
        if left:
            self._places[key] = left
        else:
            del self._places[key], self._order[bisect_left(self._order, key)]

    def walk(self, among: int) -> Iterator[tuple[Key, int]]:
        """Keys and the places of `among` that have them, none empty, the best first."""
        for key in self._order:
            places = self._places[key] & among
            if places:
                yield key, places
