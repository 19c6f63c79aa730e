"""Where users of other hosts ask why (`explain_listen`): TCP, one question per connection.

    client -> engine   a munge credential and a line feed
    engine -> client   a munge credential for that user alone, or `error TEXT`, and a line feed

Off by default. Everything slow runs in a few threads. Munge proves who asks, and each user has an
allowance, so that nobody asks at the cost of others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from slurm_plugin.base import munge
from slurm_plugin.base.munge import MungeError
from slurm_plugin.base.port import Port
from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.decide.machines import Machines
from slurm_plugin.tell.explain.answer import Noted, answer
from slurm_plugin.tell.explain.search import LogIndex

logger = logging.getLogger(__name__)

THREADS = 2
#: Seconds we have for the answer.
ANSWER_S = 10.0
#: Questions of one user per second in the long run, and at once.
RATE = 5.0
BURST = 10.0
#: Users whose allowance is remembered: those who asked last.
MAX_USERS = 4096
#: Seconds after which the log is followed though nobody asks: files that are gone are let go.
FOLLOW_S = 30.0
BUSY = b"error the engine is busy; ask again in a second\n"


class Allowances:
    """What each user may ask: `RATE` per second, `BURST` at once, one question at a time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: How many questions each user had left, and when; who asked last stands last.
        self._left: dict[int, tuple[float, float]] = {}
        self._asking: set[int] = set()

    def begin(self, uid: int) -> bool:
        """Whether this user may ask now; `end` when it is answered."""
        now = self._clock()
        left, seen = self._left.pop(uid, (BURST, now))
        left = min(BURST, left + (now - seen) * RATE)
        is_allowed = left >= 1 and uid not in self._asking
        self._left[uid] = (left - is_allowed, now)
        if len(self._left) > MAX_USERS:
            del self._left[next(iter(self._left))]
        if is_allowed:
            self._asking.add(uid)
        return is_allowed

    def end(self, uid: int) -> None:
        """The user's question is over."""
        self._asking.discard(uid)


class ExplainListener:
    """Serves credentials at one address; `site` gives the log, nodes and notes of the moment."""

    def __init__(
        self,
        address: tuple[str, int],
        site: Callable[[], tuple[DecisionLogConfig, Machines, Noted]],
    ) -> None:
        self.address = address
        self._site = site
        self._port = Port("explain_listen", address, b"\n", self._reply, BUSY)
        # Proving who asks never waits behind an answer that takes its time.
        self._door = ThreadPoolExecutor(1, thread_name_prefix="explain-munge")
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="explain")
        self._allowances: Allowances | None = None
        self._index: LogIndex | None = None
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen; raises PluginError when the address is taken or not ours."""
        self._allowances = Allowances(asyncio.get_running_loop().time)
        await self._port.start()
        self._following = asyncio.create_task(self._follow())
        logger.info("users may ask why at %s:%d", self.address[0], self._port.number)

    async def stop(self) -> None:
        """Take no more questions; those being answered are dropped."""
        await self._port.stop()
        if self._following is not None:
            self._following.cancel()
        for threads in (self._door, self._threads):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_S)
            if self._index is not None:
                with contextlib.suppress(OSError):
                    loop = asyncio.get_running_loop()
                    await loop.run_in_executor(self._threads, self._index.follow)

    def _known(self) -> tuple[LogIndex, Machines, Noted]:
        log, machines, noted = self._site()
        if self._index is None or self._index.config != log:
            self._index = LogIndex(log)
        return self._index, machines, noted

    async def _reply(self, line: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER_S):
                opened = partial(munge.open_sealed, line.strip())
                asked = await loop.run_in_executor(self._door, opened)
                return await self._answered(asked)
        except MungeError as error:
            return b"error " + str(error).encode(errors="replace")[:200] + b"\n"
        except TimeoutError:
            return b"error no answer in time; ask again later\n"
        except Exception:
            logger.exception("a user's question could not be answered")
            return b"error the engine could not answer; its log says why\n"

    async def _answered(self, asked: munge.Opened) -> bytes:
        allowances, loop = self._allowances, asyncio.get_running_loop()
        assert allowances is not None
        if not allowances.begin(asked.uid):
            return BUSY
        work = loop.run_in_executor(self._threads, answer, asked, *self._known())
        # Not before the thread is done, though nobody may wait for it any more.
        work.add_done_callback(lambda _: allowances.end(asked.uid))
        return await asyncio.shield(work) + b"\n"
