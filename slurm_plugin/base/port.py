"""A TCP port for strangers: one request and one reply per connection, none for long.

Few connections are open at a time, fewer of one source. Beyond that a newcomer takes the place of
one that keeps us waiting: clients of ours speak, and take their replies, within milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address

from slurm_plugin.errors import PluginError

logger = logging.getLogger(__name__)

#: Connections served at a time: in all, and of one source.
MAX_OPEN, MAX_OF_ONE = 16, 8
#: So many more wait in the kernel, where they cost no descriptor: beyond it clients of ours would
#: be among those whose first packet is dropped, and try again after seconds only.
BACKLOG = 1024
MAX_REQUEST_BYTES = 8192
#: Seconds a client has to say what it wants, and to take a reply that is ready.
REQUEST_S, TAKE_S = 2.0, 5.0
#: Rest after one that was sent away, or failed: a flood must not keep the loop that answers Slurm.
REST_S, FAILED_S = 0.002, 1.0

#: A request's bytes -> the whole reply.
Reply = Callable[[bytes], Awaitable[bytes]]


@dataclass(eq=False, slots=True)
class _Place:
    """What an open connection has."""

    source: str
    #: Is it the client's turn: to ask, or to take its reply?
    waits: bool = True
    #: Serves it.
    task: asyncio.Task[None] | None = None


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
        #: The oldest first.
        self._open: dict[_Place, None] = {}
        #: A place became free, or may be given to another.
        self._changed = asyncio.Event()
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
                listener = socket.create_server(where[:2], family=family, backlog=BACKLOG)
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

    def _keep(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, (host, *_) = await loop.sock_accept(listener)
            except OSError as error:
                # No descriptor left, most likely: the connection waits in the kernel.
                logger.warning("%s: %s; trying again", self._setting, error)
                await asyncio.sleep(FAILED_S)
                continue
            place = _Place(source_of(host))
            is_crowded = len(self._open) >= MAX_OPEN or self._count(place.source) >= MAX_OF_ONE
            with contextlib.ExitStack() as unless_served:
                unless_served.enter_context(connection)
                if await self._has_room(place.source):
                    self._open[place] = None
                    place.task = self._keep(self._serve(connection, place))
                    place.task.add_done_callback(partial(self._ended, connection, place))
                    unless_served.pop_all()
                else:
                    with contextlib.suppress(OSError):
                        connection.send(self._busy)
            if is_crowded:
                await asyncio.sleep(REST_S)

    def _count(self, source: str) -> int:
        return sum(one.source == source for one in self._open)

    async def _has_room(self, source: str) -> bool:
        """Make room for one more; False where all that this source may have is being answered."""
        while True:
            crowd = source
            if self._count(source) < MAX_OF_ONE:
                if len(self._open) < MAX_OPEN:
                    return True
                waiting = Counter(one.source for one in self._open if one.waits)
                crowd = waiting.most_common(1)[0][0] if waiting else ""
            if goes := [one for one in self._open if one.waits and one.source == crowd]:
                # Any of the older half: if always the oldest went, a steady crowd kept all others
                # out.
                self._send_away(random.choice(goes[: len(goes) // 2 + 1]))
                return True
            if crowd:
                return False
            self._changed.clear()
            await self._changed.wait()

    def _send_away(self, place: _Place) -> None:
        del self._open[place]
        if place.task is not None:
            place.task.cancel()

    def _ended(self, connection: socket.socket, place: _Place, _: asyncio.Task[None]) -> None:
        # A task that is cancelled before its first step has closed nothing.
        connection.close()
        self._open.pop(place, None)
        self._changed.set()

    async def _serve(self, connection: socket.socket, place: _Place) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=MAX_REQUEST_BYTES)
        try:
            async with asyncio.timeout(REQUEST_S):
                request = await reader.readuntil(self._end)
            place.waits = False
            reply = await self._reply(request)
            place.waits = True
            self._changed.set()
            writer.write(reply)
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


def source_of(host: str) -> str:
    """By what a connection counts; a host has all of 127.0.0.0/8, which is one source."""
    return "loopback" if ip_address(host).is_loopback else host
