"""Rankings that are kept up to date, against ranking everything anew."""

from __future__ import annotations

from random import Random

import pytest

from policies.contract import ranking
from policies.contract.ranking import Key, Keys, StateIndex, each, lowest


def test_a_set_of_places_is_read_from_its_lowest_on():
    assert list(each(0b101001)) == [0, 3, 5]
    assert lowest(0b101000) == 3
    assert list(each(0)) == []


def keys(states: list[int]) -> list[Key | None]:
    """Several states share a rank, some have none."""
    return [None if state == 3 else (state % 4, 1.0) for state in states]


def ranked_anew(states: list[int], among: int) -> list[tuple[Key, int]]:
    """What `walk` has to say, the slow way."""
    found: dict[Key, int] = {}
    for place, state in enumerate(states):
        (key,) = keys([state])
        if key is not None and among >> place & 1:
            found[key] = found.get(key, 0) | 1 << place
    return sorted(found.items())


@pytest.mark.parametrize("seed", range(20))
def test_a_ranking_that_is_kept_says_what_a_new_one_says(seed):
    draw = Random(seed)
    states = [draw.randrange(9) for _ in range(draw.randint(1, 90))]
    index = StateIndex(states)
    for _ in range(40):
        for _ in range(draw.choice((0, 1, 5, 300))):
            place, state = draw.randrange(len(states)), draw.randrange(9)
            states[place] = state
            index.move(place, state)
        for _ in range(draw.choice((0, 1, 30))):
            index.catch_up(4)
        among = draw.getrandbits(len(states))
        kept = index.ranking("kind", keys)
        assert list(kept.walk(among)) == ranked_anew(states, among)
        for state in range(9):
            assert list(each(index.places(state))) == [
                i for i, s in enumerate(states) if s == state
            ]
        assert set(index.states()) == set(states)


def test_only_new_states_are_looked_at():
    asked: list[int] = []

    def counted(states: list[int]) -> list[Key | None]:
        asked.extend(states)
        return [(state,) for state in states]

    index = StateIndex(range(1000))
    index.ranking("kind", counted)
    assert sorted(asked) == list(range(1000))
    index.move(5, 2000)
    index.move(6, 2000)
    index.move(7, 8)
    asked.clear()
    assert next(index.ranking("kind", counted).walk(1 << 5)) == ((2000,), 1 << 5)
    assert asked == [2000]


def test_changes_are_ranked_ahead_in_steps_the_last_ranking_first():
    asked: list[tuple[str, list[int]]] = []

    def named(name: str) -> Keys[int]:
        def counted(states: list[int]) -> list[Key | None]:
            asked.append((name, sorted(states)))
            return [(state,) for state in states]

        return counted

    index = StateIndex(range(100))
    index.ranking("first", named("first"))
    index.ranking("last", named("last"))
    assert not index.catch_up(2)
    for place in range(3):
        index.move(place, 200 + place)
    asked.clear()
    steps = 0
    while index.catch_up(2):
        steps += 1
    assert steps == 4
    assert asked == [("last", [200, 201]), ("last", [202]), ("first", [200, 201]), ("first", [202])]
    index.ranking("first", named("first"))
    assert len(asked) == 4


def test_a_ranking_without_a_name_is_not_remembered():
    index = StateIndex([1, 2])
    first = index.ranking(None, lambda states: [(state,) for state in states])
    other = index.ranking(None, lambda states: [(-state,) for state in states])
    assert next(first.walk(3)) == ((1,), 1)
    assert next(other.walk(3)) == ((-2,), 2)


def test_of_many_rankings_the_last_ones_asked_for_are_kept(monkeypatch):
    monkeypatch.setattr(ranking, "KEPT", 2)
    index = StateIndex([1])
    kinds = [index.ranking(kind, keys) for kind in ("a", "b")]
    assert index.ranking("a", keys) is kinds[0]
    index.ranking("c", keys)
    assert index.ranking("a", keys) is kinds[0]
    assert index.ranking("b", keys) is not kinds[1]


def test_states_that_stay_are_not_looked_at_again_when_others_are_forgotten():
    """A thousand sliced nodes are hardly ever twice in one state: what is kept must not grow."""
    asked: list[int] = []

    def counted(states: list[int]) -> list[Key | None]:
        asked.extend(states)
        return [(state,) for state in states]

    index = StateIndex(range(100))
    for new in range(100, 1000):
        index.move(0, new)
        index.ranking("kind", counted)
    assert len(asked) == len(set(asked)) == 1000 - 1
    assert [place for _, place in index.ranking("kind", counted).walk(0b11)] == [0b10, 0b01]
