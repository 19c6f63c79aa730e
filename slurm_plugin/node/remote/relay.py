"""The two ends of the relay: at the donor, and on the job's own node.

The donor's end lets in the job's user alone. Then one line says what is wanted: `info` tells about
the donor, `open` hands the connection to the middleware's server, `open 1` to the port behind its
first: the donor's end says `ok`, the job's end `go`, and all bytes that follow are the server's and
the task's. The job's end listens on loopback for the tasks of that user, or gives them the
connection itself (door.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm_plugin.errors import HungUp, Refused, RemoteError
from slurm_plugin.node.remote import handshake, sockets, streams
from slurm_plugin.node.remote.door import Tools
from slurm_plugin.node.remote.handshake import Munge
from slurm_plugin.node.remote.sockets import peer_of
from slurm_plugin.node.remote.strangers import CHECKS_PER_SOURCE, Strangers
from slurm_plugin.node.remote.streams import Listener, Streams

logger = logging.getLogger(__name__)

CONNECT_S = 10.0
OK, GO = b"ok\n", b"go\n"
_OPEN = re.compile(rb"open(?: ([1-9]))?")
#: A client that was turned away because of too many tries again, after a pause up to this.
AGAIN_S = 0.2
#: Seconds until a connection that nobody answers is followed by the next: where a flood fills the
#: donor's queue, the kernel itself would try again after one, three and seven.
KNOCK_S = 0.5


@dataclass(frozen=True)
class DonorAddress:
    """Where the job's end reaches a donor's end."""

    host: str
    port: int
    subject: str


@dataclass
class DonorEnd:
    """Listens on the network for one job."""

    subject: str
    #: What clients are told.
    info: Mapping[str, Any]
    #: Gives the middleware's server a connection to its nth port, from 0 on; None where clients go
    #: there by themselves.
    admit: Callable[[socket.socket, int], Awaitable[None]] | None
    vouching: Munge
    strangers: Strangers = field(default_factory=Strangers)
    refused: int = 0

    async def start(self, sock: socket.socket) -> contextlib.ExitStack:
        """Serve a socket that is bound already, until what this returns is closed."""
        listening = contextlib.ExitStack()
        for one in filter(None, (sock, sockets.from_here(sock))):
            listening.callback(Listener(one, self._lets_in, self._serve).close)
        return listening

    @staticmethod
    def _lets_in(sock: socket.socket) -> bool:
        """Another user of this very node needs no proof to be known, and takes no place."""
        try:
            return peer_of(sock) in (None, os.getuid())
        except RemoteError:  # Where the kernel does not tell, munge does.
            return True

    async def _serve(self, near: socket.socket) -> None:
        reader, writer = await streams.made_of(near, handshake.MAX_LINE_BYTES)
        try:
            await handshake.let_in(reader, writer, self.subject, self.vouching, self.strangers)
            request = await asyncio.wait_for(reader.readline(), CONNECT_S)
            await self._do(request.strip(), (reader, writer))
        except Refused as error:
            self.refused += 1
            logger.warning("refused %s: %s", writer.get_extra_info("peername"), error)
        except (OSError, TimeoutError, ValueError, RemoteError) as error:
            logger.info("a connection ended: %s", error)
        finally:
            with contextlib.suppress(OSError):
                await writer.drain()
            streams.close(writer)

    async def _do(self, request: bytes, near: Streams) -> None:
        if request == b"info":
            near[1].write(json.dumps(self.info).encode() + b"\n")
        elif (asked := _OPEN.fullmatch(request)) and self.admit is not None:
            sock = await streams.taken(near)
            try:
                async with asyncio.timeout(CONNECT_S):
                    await asyncio.get_running_loop().sock_sendall(sock, OK)
                    await streams.exactly(sock, GO)
            except (OSError, TimeoutError, Refused):
                sock.close()
                raise
            await self.admit(sock, int(asked[1] or 0))


async def enter(donor: DonorAddress, request: str, vouching: Munge) -> Streams:
    """A connection to a donor after the handshake, once `request` was sent. Raises Refused."""
    now = asyncio.get_running_loop().time
    end = now() + CONNECT_S
    while True:
        try:
            return await _try_to_enter(donor, request, vouching)
        except HungUp:
            if now() > end:
                raise
        await asyncio.sleep(random.uniform(0, AGAIN_S))


async def _connected(donor: DonorAddress) -> Streams:
    """A connection to the donor's port. Raises OSError, TimeoutError after CONNECT_S."""
    now = asyncio.get_running_loop().time
    end = now() + CONNECT_S
    while True:
        try:
            async with asyncio.timeout(min(KNOCK_S, CONNECT_S)):
                return await asyncio.open_connection(donor.host, donor.port)
        except TimeoutError:
            if now() > end:
                raise


async def _try_to_enter(donor: DonorAddress, request: str, vouching: Munge) -> Streams:
    try:
        reader, writer = await _connected(donor)
    except (OSError, TimeoutError) as error:
        why = getattr(error, "strerror", None) or str(error) or f"no answer within {CONNECT_S:g} s"
        raise Refused(f"{donor.host}:{donor.port} cannot be reached: {why}") from error
    try:
        await handshake.prove(reader, writer, donor.subject, vouching)
        writer.write(f"{request}\n".encode())
        await writer.drain()
    except (Refused, OSError) as error:
        streams.close(writer)
        kind = type(error) if isinstance(error, Refused) else HungUp
        raise kind(f"{donor.host}:{donor.port}: {error}") from error
    return reader, writer


async def ask(donor: DonorAddress, vouching: Munge) -> dict[str, Any]:
    """What a donor says about itself, once both have proved who they are. Raises RemoteError."""
    reader, writer = await enter(donor, "info", vouching)
    try:
        async with asyncio.timeout(CONNECT_S):
            info = json.loads(await reader.readline())
    except (OSError, TimeoutError, ValueError) as error:
        raise RemoteError(f"{donor.host}:{donor.port}: no word of its devices: {error}") from error
    finally:
        streams.close(writer)
    if not isinstance(info, dict):
        raise RemoteError(f"{donor.host}:{donor.port}: no word of its devices")
    return info


@dataclass
class JobEnd:
    """Listens on loopback for one donor; only connections of this process's own user pass."""

    donor: DonorAddress
    vouching: Munge
    tools: Tools
    #: Which of the server's ports this is, from 0 on.
    nth: int = 0
    # More at a time would only wait at the donor.
    _entering: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(CHECKS_PER_SOURCE)
    )

    async def start(self, sock: socket.socket) -> Listener:
        """Serve a socket that is bound already, until what this returns is closed."""
        return Listener(sock, lambda near: peer_of(near) == os.getuid(), self._serve)

    async def _serve(self, near: socket.socket) -> None:
        try:
            self.tools.carry(near, await self.reach())
        except (OSError, TimeoutError, ValueError, RemoteError) as error:
            logger.warning("a task could not reach %s: %s", self.donor.host, error)

    async def reach(self) -> socket.socket:
        """A connection to the donor's server, both ends proven. Raises OSError, RemoteError."""
        async with self._entering:
            request = f"open {self.nth}" if self.nth else "open"
            far = await enter(self.donor, request, self.vouching)
        try:
            async with asyncio.timeout(CONNECT_S):
                if await far[0].readline() != OK:
                    raise Refused("its server is away")
                sock = await streams.taken(far)
                try:
                    await asyncio.get_running_loop().sock_sendall(sock, GO)
                except (OSError, TimeoutError):
                    sock.close()
                    raise
                return sock
        finally:
            streams.close(far[1])
