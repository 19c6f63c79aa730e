"""A TCP port for strangers: one request and one reply per connection, none for long.

Only as many connections are accepted as are served at a time, few of them of one source. The others
wait in the kernel, where they cost the engine no descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine

from slurm_plugin.errors import PluginError

logger = logging.getLogger(__name__)

#: Connections served at a time: in all, and of one address.
MAX_OPEN, MAX_OF_ONE = 16, 8
MAX_REQUEST_BYTES = 8192
#: Seconds a client has to say what it wants, and to take a reply that is ready.
REQUEST_S, TAKE_S = 2.0, 5.0
#: Rest after a refused or failed connection: a flood must not keep the loop that answers Slurm.
REST_S, FAILED_S = 0.002, 1.0

#: A request's bytes -> the whole reply.
Reply = Callable[[bytes], Awaitable[bytes]]


class Port:
    """One address that is listened at; `setting` is its key in gputopo.yaml, for errors.

    A request ends with the bytes `end`. Clients with too many connections get `busy` for an answer.
    """

    def __init__(
        self, setting: str, address: tuple[str, int], end: bytes, reply: Reply, busy: bytes
    ) -> None:
        self._setting, self._address = setting, address
        self._end, self._reply, self._busy = end, reply, busy
        self._listeners: list[socket.socket] = []
        self._room = asyncio.Semaphore(MAX_OPEN)
        self._of: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def number(self) -> int:
        """The port listened on."""
        return int(self._listeners[0].getsockname()[1])

    async def start(self) -> None:
        """Listen; raises PluginError when the address is taken or not ours."""
        host, port = self._address
        loop = asyncio.get_running_loop()
        try:
            addresses = await loop.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, *_, where in dict.fromkeys(addresses):
                listener = socket.create_server(where[:2], family=family, backlog=MAX_OPEN)
                listener.setblocking(False)
                self._listeners.append(listener)
        except OSError as error:
            await self.stop()
            raise PluginError(
                f"{self._setting} {host}:{port}: {error.strerror or error}; choose a free port"
            ) from error
        for listener in self._listeners:
            self._keep(self._accept(listener))

    async def stop(self) -> None:
        """Listen no more; what is being answered is dropped."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.close()

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                connection, (source, *_) = await loop.sock_accept(listener)
            except OSError as error:
                # No descriptor left, most likely: the connection waits in the kernel.
                logger.warning("%s: %s; trying again", self._setting, error)
                self._room.release()
                await asyncio.sleep(FAILED_S)
                continue
            if self._of[source] < MAX_OF_ONE:
                self._of[source] += 1
                self._keep(self._serve(connection, source))
                continue
            with connection, contextlib.suppress(OSError):
                connection.send(self._busy)
            self._room.release()
            await asyncio.sleep(REST_S)

    async def _serve(self, connection: socket.socket, source: str) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=MAX_REQUEST_BYTES)
        try:
            async with asyncio.timeout(REQUEST_S):
                request = await reader.readuntil(self._end)
            writer.write(await self._reply(request))
            async with asyncio.timeout(TAKE_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            # The client was too slow, sent too much, or is gone: nobody else is concerned.
            pass
        finally:
            # Whatever it has not taken is dropped, and the descriptor is ours again.
            writer.transport.abort()
            self._of[source] -= 1
            self._of += Counter()
            self._room.release()
