"""Connections as asyncio's streams while both ends get to know each other, then as bare sockets."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable

from slurm_plugin.errors import Refused, RemoteError

logger = logging.getLogger(__name__)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

#: Seconds until the next try where this process can open no more files.
FULL_S = 0.1
#: Connections that may wait until they are accepted; the kernel's own limit (somaxconn) holds, too.
WAITING = 1024
#: So many are accepted before all else that this process does gets its turn.
AT_ONCE = 16


async def made_of(sock: socket.socket, limit: int) -> Streams:
    """Streams over a connection, which is no longer `sock`'s. Raises OSError."""
    return await asyncio.open_connection(sock=socket.socket(fileno=sock.detach()), limit=limit)


async def taken(near: Streams) -> socket.socket:
    """The socket under the two, which are no more. The peer must wait for a word of ours.

    Raises Refused where it did not: what it said was read already, and nobody could hand it on.
    """
    reader, writer = near
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    reader.feed_eof()
    said = await reader.read()
    sock: socket.socket = writer.get_extra_info("socket").dup()
    sock.setblocking(False)
    close(writer)
    if said:
        sock.close()
        raise Refused("it spoke before it was asked to")
    return sock


async def exactly(sock: socket.socket, words: bytes) -> None:
    """Read these words and not a byte more. Raises Refused for any others."""
    heard = b""
    while words.startswith(heard) and heard != words:
        part = await asyncio.get_running_loop().sock_recv(sock, len(words) - len(heard))
        heard += part or b"\0"
    if heard != words:
        raise Refused("it ended before the connection was handed over")


class Listener:
    """Gives the connections that a listening socket accepts to `serve`, until it is closed.

    `lets_in` looks at each before anything is kept for it: where it says no, or raises OSError or
    RemoteError, the connection is closed. It is called often, and must not wait.
    """

    def __init__(
        self,
        sock: socket.socket,
        lets_in: Callable[[socket.socket], bool],
        serve: Callable[[socket.socket], Awaitable[None]],
    ) -> None:
        sock.setblocking(False)
        sock.listen(WAITING)
        self._sock, self._lets_in, self._serve = sock, lets_in, serve
        #: How many were closed.
        self.refused = 0
        self._served: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for nth in itertools.count(1):
            # What waits already is accepted without a pause: a flood would leave nobody a turn.
            if not nth % AT_ONCE:
                await asyncio.sleep(0)
            try:
                sock, _ = await loop.sock_accept(self._sock)
            except OSError as error:
                logger.warning("no connection can be accepted: %s", error)
                await asyncio.sleep(FULL_S)
                continue
            if not self._is_let_in(sock):
                sock.close()
                continue
            task = loop.create_task(self._one(sock))
            self._served.add(task)
            task.add_done_callback(self._served.discard)

    def _is_let_in(self, sock: socket.socket) -> bool:
        with contextlib.suppress(OSError, RemoteError):
            if self._lets_in(sock):
                return True
        self.refused += 1
        # The second, fourth, eighth, ...: a line for each would be a flood of lines.
        if not self.refused & (self.refused - 1):
            logger.warning("refused %d connections, of other users or over", self.refused)
        return False

    async def _one(self, sock: socket.socket) -> None:
        # Whoever keeps the connection has closed `sock` or detached it.
        with sock, contextlib.suppress(OSError):
            await self._serve(sock)

    def close(self) -> None:
        """Accept nothing more."""
        self._accepting.cancel()
        for task in self._served:
            task.cancel()
        self._sock.close()


def close(writer: asyncio.StreamWriter) -> None:
    """Close, whether or not the peer is still there."""
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()
