"""Whose question is looked up next: few at a time, fewer of one user, and users in turn."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from slurm_plugin.tell.explain.search import Stopped

T = TypeVar("T")

#: Threads that look things up for all users, and for one of them.
MAX_LOOKS, MAX_OF_ONE = 4, 2
#: Questions of one user that may wait for their turn.
MAX_WAITING = 64

IsOver = Callable[[], bool]


class TooMany(Exception):
    """This user has asked more than may wait already."""


class ClientTurns:
    """Runs what blocks; only the event loop may call it."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_LOOKS, thread_name_prefix="look")
        self._under_way: Counter[int] = Counter()
        #: Users with questions that wait, in the order in which it is their turn.
        self._waiting: dict[int, deque[tuple[asyncio.Future[None], IsOver]]] = {}

    async def look(self, uid: int, function: Callable[[], T], is_over: IsOver) -> T:
        """What the function returns, called in a thread when it is this user's turn.

        `is_over` says that nobody waits for it any more. Raises TooMany; Stopped where it was over
        before its turn came.
        """
        await self._turn(uid, is_over)
        work = asyncio.get_running_loop().run_in_executor(self._threads, function)
        # Not before the thread is done, though nobody may wait for it any more.
        work.add_done_callback(lambda _: self._ended(uid, work))
        return await asyncio.shield(work)

    async def _turn(self, uid: int, is_over: IsOver) -> None:
        if self._is_free(uid) and uid not in self._waiting:
            self._under_way[uid] += 1
            return
        queue = deque(one for one in self._waiting.get(uid, ()) if _waits(*one))
        if len(queue) >= MAX_WAITING:
            raise TooMany
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append((turn, is_over))
        self._waiting[uid] = queue
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._ended(uid)
            raise

    def _is_free(self, uid: int) -> bool:
        return self._under_way[uid] < MAX_OF_ONE and self._under_way.total() < MAX_LOOKS

    def _ended(self, uid: int, work: asyncio.Future[T] | None = None) -> None:
        if work is not None and not work.cancelled():
            # Looked at, for those whose client has left.
            work.exception()
        self._under_way[uid] -= 1
        if not self._under_way[uid]:
            del self._under_way[uid]
        # Who has nothing under way comes first.
        for other in sorted(self._waiting, key=self._under_way.__getitem__):
            if self._is_free(other):
                self._give(other)

    def _give(self, uid: int) -> None:
        """The turn to the first question of this user that somebody still waits for."""
        queue = self._waiting.pop(uid)
        while queue:
            one = queue.popleft()
            if _waits(*one):
                self._under_way[uid] += 1
                one[0].set_result(None)
                break
        if queue:
            # Behind all others.
            self._waiting[uid] = queue


def _waits(turn: asyncio.Future[None], is_over: IsOver) -> bool:
    """Does anybody still wait for this turn? Who does not is told so."""
    if not turn.done() and is_over():
        turn.set_exception(Stopped())
    return not turn.done()
