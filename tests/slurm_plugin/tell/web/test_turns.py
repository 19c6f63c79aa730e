"""Who is looked up next: few at a time, few of one user, users in turn, nobody who has left."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from web_in_tests import ALICE, BOB

from slurm_plugin.tell.explain.search import Stopped
from slurm_plugin.tell.web.clients import turns
from slurm_plugin.tell.web.clients.turns import (
    MAX_LOOKS,
    MAX_OF_ONE,
    MAX_WAITING,
    ClientTurns,
    TooMany,
)

CAROL, DAVE = 2003, 2004


class Looks:
    """Questions that are under way until they are let go."""

    def __init__(self) -> None:
        self.turns = ClientTurns()
        self.begun: list[str] = []
        self._ends: dict[str, threading.Event] = {}
        self.left: set[str] = set()

    def ask(self, uid: int, name: str) -> asyncio.Task[str]:
        self._ends[name] = threading.Event()

        def look() -> str:
            self.begun.append(name)
            assert self._ends[name].wait(30)
            return name

        return asyncio.create_task(self.turns.look(uid, look, lambda: name in self.left))

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await settled()

    def end_all(self) -> None:
        for one in self._ends.values():
            one.set()


async def settled() -> None:
    """Threads have begun what they were given, and the loop knows what has ended."""
    for _ in range(20):
        await asyncio.sleep(0.005)


@contextmanager
def looks() -> Iterator[Looks]:
    asked = Looks()
    try:
        yield asked
    finally:
        asked.end_all()


async def test_one_user_has_so_many_at_a_time_and_no_more():
    with looks() as asked:
        [asked.ask(ALICE, f"a{i}") for i in range(10)]
        await settled()
        assert sorted(asked.begun) == [f"a{i}" for i in range(MAX_OF_ONE)]
        await asked.end("a0")
        assert len(asked.begun) == MAX_OF_ONE + 1


async def test_all_users_together_have_so_many():
    with looks() as asked:
        [asked.ask(uid, f"{uid}-{i}") for uid in range(9) for i in range(3)]
        await settled()
        assert len(asked.begun) == MAX_LOOKS


async def test_users_take_turns_however_much_one_of_them_asks():
    with looks() as asked:
        for uid, name, count in ((ALICE, "a", 50), (BOB, "b", 50), (CAROL, "c", 2), (DAVE, "d", 1)):
            [asked.ask(uid, f"{name}{i}") for i in range(count)]
            await asyncio.sleep(0)
        await settled()
        assert set(asked.begun) == {"a0", "a1", "b0", "b1"}
        for name in ("a0", "b0"):
            await asked.end(name)
        # Of those who wait, each has one before anybody has a second.
        assert asked.begun[4:] == ["c0", "d0"]
        await asked.end("a1")
        assert asked.begun[6:] == ["a2"]


async def test_who_asks_beyond_what_may_wait_is_refused_and_the_others_are_not():
    with looks() as asked:
        tasks = [asked.ask(ALICE, f"a{i}") for i in range(MAX_OF_ONE + MAX_WAITING)]
        await settled()
        with pytest.raises(TooMany):
            await asked.ask(ALICE, "one more")
        bob = asked.ask(BOB, "b")
        await asked.end("b")
        assert await bob == "b"
        asked.end_all()
        assert await asyncio.gather(*tasks) == [f"a{i}" for i in range(len(tasks))]


async def test_whose_client_has_left_is_not_looked_up_and_makes_room(monkeypatch):
    monkeypatch.setattr(turns, "MAX_WAITING", 3)
    with looks() as asked:
        [asked.ask(ALICE, f"a{i}") for i in range(MAX_OF_ONE)]
        await settled()
        gone = [asked.ask(ALICE, f"gone{i}") for i in range(3)]
        await settled()
        asked.left |= {"gone0", "gone1", "gone2"}
        last = asked.ask(ALICE, "last")
        await settled()
        assert [type(one.exception()) for one in gone] == [Stopped] * 3
        asked.end_all()
        assert await last == "last"
        assert not [name for name in asked.begun if name.startswith("gone")]


async def test_who_is_cancelled_in_the_queue_leaves_it():
    with looks() as asked:
        [asked.ask(ALICE, f"a{i}") for i in range(MAX_OF_ONE)]
        await settled()
        waiting, last = asked.ask(ALICE, "waiting"), asked.ask(ALICE, "last")
        await settled()
        waiting.cancel()
        asked.end_all()
        assert await last == "last"
        assert "waiting" not in asked.begun


async def test_a_look_counts_until_its_thread_is_done_though_its_client_has_left():
    """Else who asks and leaves at once would have as many threads at work as they like."""
    with looks() as asked:
        under_way = [asked.ask(ALICE, f"a{i}") for i in range(MAX_OF_ONE)]
        await settled()
        for one in under_way:
            one.cancel()
        asked.ask(ALICE, "next")
        await settled()
        assert "next" not in asked.begun
        await asked.end("a0")
        assert "next" in asked.begun


async def test_nothing_is_remembered_of_those_who_are_done():
    with looks() as asked:
        tasks = [asked.ask(uid, f"{uid}-{i}") for uid in range(30) for i in range(4)]
        await settled()
        asked.end_all()
        await asyncio.gather(*tasks)
        await settled()
        assert not asked.turns._waiting
        assert not asked.turns._under_way
