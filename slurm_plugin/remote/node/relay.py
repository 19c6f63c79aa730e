"""The two ends of the relay: at the donor, and on the job's own node.

The donor's end listens on the network, lets in the job's user alone and then does what one line
says: `info` tells about the donor, `open` carries bytes to the middleware's server, which itself
listens on this host's loopback. The job's end listens on loopback for the tasks of that user.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_plugin.remote.errors import Refused, RemoteError
from slurm_plugin.remote.node import handshake, streams
from slurm_plugin.remote.node.handshake import Vouching

logger = logging.getLogger(__name__)

#: Strangers that are being looked at, at most; others have to wait for their turn.
MAX_STRANGERS = 16
CONNECT_S = 10.0
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Door:
    """A donor's end, as the job's end knows it."""

    host: str
    port: int
    subject: str


class DonorEnd:
    """Listens at `address`; `info` is what clients are told, `reach` connects to the server."""

    def __init__(
        self,
        subject: str,
        info: Mapping[str, Any],
        reach: Callable[[], Awaitable[Streams]] | None,
        vouching: Vouching,
    ) -> None:
        self._subject = subject
        self._info = info
        self._reach = reach
        self._vouching = vouching
        self._strangers = asyncio.Semaphore(MAX_STRANGERS)
        self._server: asyncio.Server | None = None
        self.refused = 0

    async def start(self, sock: Any) -> None:
        """Serve a socket that is bound already."""
        self._server = await asyncio.start_server(
            self._serve, sock=sock, limit=handshake.MAX_LINE_BYTES
        )

    async def stop(self) -> None:
        """Take no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._strangers:
                await handshake.let_in(reader, writer, self._subject, self._vouching)
                wish = await asyncio.wait_for(reader.readline(), handshake.HANDSHAKE_S)
            await self._do(wish.strip(), (reader, writer))
        except Refused as error:
            self.refused += 1
            logger.warning("refused %s: %s", writer.get_extra_info("peername"), error)
        except (OSError, TimeoutError, ValueError) as error:
            logger.info("a connection ended: %s", error)
        finally:
            with contextlib.suppress(OSError):
                await writer.drain()
            streams.close(writer)

    async def _do(self, wish: bytes, near: Streams) -> None:
        if wish == b"info":
            near[1].write(json.dumps(self._info).encode() + b"\n")
        elif wish == b"open" and self._reach is not None:
            far = await self._reach()
            near[1].write(b"ok\n")
            await streams.join(near, far)


async def enter(door: Door, wish: str, vouching: Vouching) -> Streams:
    """A connection to a donor after the handshake, `wish` being said. Raises Refused."""
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(door.host, door.port)
    except (OSError, TimeoutError) as error:
        why = getattr(error, "strerror", None) or error or f"no answer within {CONNECT_S:g} s"
        raise Refused(f"{door.host}:{door.port} cannot be reached: {why}") from error
    try:
        await handshake.prove(reader, writer, door.subject, vouching)
        writer.write(f"{wish}\n".encode())
        await writer.drain()
    except (Refused, OSError) as error:
        streams.close(writer)
        raise Refused(f"{door.host}:{door.port}: {error}") from error
    return reader, writer


async def ask(door: Door, vouching: Vouching) -> dict[str, Any]:
    """What a donor tells about itself, once both have proved who they are. Raises RemoteError."""
    reader, writer = await enter(door, "info", vouching)
    try:
        async with asyncio.timeout(CONNECT_S):
            found = json.loads(await reader.readline())
    except (OSError, TimeoutError, ValueError) as error:
        raise RemoteError(f"{door.host}:{door.port}: no word of its devices: {error}") from error
    finally:
        streams.close(writer)
    if not isinstance(found, dict):
        raise RemoteError(f"{door.host}:{door.port}: no word of its devices")
    return found


class JobEnd:
    """Listens on loopback for one donor; only connections of this process's own user pass."""

    def __init__(self, door: Door, vouching: Vouching) -> None:
        self._door = door
        self._vouching = vouching
        self._server: asyncio.Server | None = None
        self.refused = 0

    async def start(self, sock: Any) -> None:
        """Serve a socket that is bound already."""
        self._server = await asyncio.start_server(self._serve, sock=sock)

    async def stop(self) -> None:
        """Take no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if owner_of(writer.get_extra_info("peername"), writer.get_extra_info("sockname")) != (
                os.getuid()
            ):
                self.refused += 1
                logger.warning("refused a connection of another user of this node")
                return
            far = await enter(self._door, "open", self._vouching)
            if await asyncio.wait_for(far[0].readline(), CONNECT_S) != b"ok\n":
                streams.close(far[1])
                raise Refused("its server is away")
            await streams.join((reader, writer), far)
        except (OSError, TimeoutError, ValueError, RemoteError) as error:
            logger.warning("a task could not reach %s: %s", self._door.host, error)
        finally:
            streams.close(writer)


def owner_of(near: tuple[str, int], far: tuple[str, int]) -> int | None:
    """The uid whose socket is `near`, connected to `far`; None where the kernel knows none.

    Both ends are on this host: the kernel lists every connection with its owner.
    """
    wanted = (f"{near[1]:04X}", f"{far[1]:04X}")
    for table in TABLES:
        with contextlib.suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                words = line.split()
                ports = tuple(word.rpartition(":")[2] for word in words[1:3])
                # 01 is a connection that stands; both its ends are in the table.
                if ports == wanted and _is_loopback(words[1]) and words[3] == "01":
                    return int(words[7])
    return None


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0]
    # 127.0.0.0/8 in the kernel's byte order, plain or mapped into IPv6.
    return host[-2:] == "7F" or host == "00000000000000000000000001000000"
