"""Where users of other hosts ask why (`explain_listen`): TCP, one question per connection.

    client -> engine   a munge credential and a line feed
    engine -> client   a munge credential for that user alone, or `error TEXT`, and a line feed

Off by default. Everything slow runs in threads of its own, and few at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from slurm_plugin.engine.setup import Setup
from slurm_plugin.errors import PluginError
from slurm_plugin.explain.answer import answer
from slurm_plugin.explain.munge import MungeError

logger = logging.getLogger(__name__)

MAX_QUESTION_BYTES = 8192
MAX_CONNECTIONS = 32
THREADS = 2
#: Seconds a client has for its question, and we for the answer.
QUESTION_S = 3.0
ANSWER_S = 10.0
#: Questions per second in the long run, and at once.
RATE = 5.0
BURST = 10.0


class Allowance:
    """A bucket of tokens: `RATE` per second, `BURST` at most."""

    def __init__(
        self, clock: Callable[[], float], rate: float = RATE, burst: float = BURST
    ) -> None:
        self._clock, self._rate, self._burst = clock, rate, burst
        self._left, self._seen = burst, clock()

    def take(self) -> bool:
        """Whether one more is allowed now."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._seen) * self._rate)
        self._seen = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class ExplainListener:
    """Serves credentials at one address; `setup` gives the engine's present one."""

    def __init__(self, address: tuple[str, int], setup: Callable[[], Setup]) -> None:
        self.address = address
        self._setup = setup
        self._server: asyncio.Server | None = None
        self._open = 0
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="explain")
        self._allowance: Allowance | None = None

    async def start(self) -> None:
        """Listen; raises PluginError when the address is taken or not ours."""
        host, port = self.address
        self._allowance = Allowance(asyncio.get_running_loop().time)
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=MAX_QUESTION_BYTES
            )
        except OSError as error:
            raise PluginError(
                f"explain_listen {host}:{port}: {error.strerror or error}; choose a free port"
            ) from error
        logger.info("users may ask why at %s:%d", host, self.port)

    @property
    def port(self) -> int:
        """The port listened on."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Take no more questions; those being answered are dropped."""
        if self._server is not None:
            self._server.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            reply = b"error the engine is busy; ask again in a second"
            if self._open <= MAX_CONNECTIONS:
                reply = await self._reply(reader)
            writer.write(reply + b"\n")
            async with asyncio.timeout(QUESTION_S):
                await writer.drain()
        except (OSError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            # Too slow, too long, or gone: that client's own affair.
            pass
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _reply(self, reader: asyncio.StreamReader) -> bytes:
        async with asyncio.timeout(QUESTION_S):
            credential = await reader.readuntil(b"\n")
        assert self._allowance is not None
        if not self._allowance.take():
            return b"error the engine is busy; ask again in a second"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER_S):
                return await loop.run_in_executor(
                    self._threads, answer, credential.strip(), self._setup()
                )
        except MungeError as error:
            return b"error " + str(error).encode(errors="replace")[:200]
        except TimeoutError:
            return b"error no answer in time; ask again later"
        except Exception:
            logger.exception("a user's question could not be answered")
            return b"error the engine could not answer; its log says why"
