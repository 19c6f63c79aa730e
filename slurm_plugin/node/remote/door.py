"""Connections handed over, once both ends are proven: from then on no byte of theirs passes Python.

A server in which gputopo-wire.so is loaded (LD_PRELOAD) gets the connection itself. The donor's end
knocks at its port; when the server accepts that, the library asks here who it is, and gets the
proven connection in its place. A server without the library is served by gputopo-carry, a process
for each connection. Both lie beside gputopo-node.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import struct
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from slurm_plugin.errors import Refused, RemoteError
from slurm_plugin.node.remote import sockets
from slurm_plugin.node.remote.sockets import LOOPBACK, Place
from slurm_plugin.node.remote.streams import Listener

CARRY, LIBRARY = "gputopo-carry", "gputopo-wire.so"
#: The variables that the library reads, in a server and in a task.
DOOR, WIRE = "GPUTOPO_DOOR", "GPUTOPO_WIRE"
#: Connections that the server has not accepted yet.
WAITING = 256
KNOCK_S, QUESTION_S = 10.0, 10.0
#: Seconds until a knock that nobody heard is followed by the next.
AGAIN_S = 0.1
_CREDENTIALS = struct.Struct("=iII")


@dataclass
class Tools:
    """The two files in C, in the folder of gputopo-node, and what runs of them."""

    folder: Path
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    def beside(cls, program: str) -> Tools:
        """Those in the folder of this program, wherever links to it lie."""
        return cls(Path(program).resolve().parent)

    def check(self) -> None:
        """Raises RemoteError where a file is missing."""
        for name in (CARRY, LIBRARY):
            if not os.access(self.folder / name, os.R_OK):
                raise RemoteError(
                    f"{self.folder / name}: no such file; it lies beside gputopo-node"
                    " (package slurm-gputopo-node, or make -C slurm_plugin/node/carry)"
                )

    @property
    def library(self) -> str:
        """The path of gputopo-wire.so."""
        return str(self.folder / LIBRARY)

    def carry(self, near: socket.socket, far: socket.socket) -> None:
        """Let a process carry bytes between two connections; they are no longer ours. OSError."""
        self._running = [process for process in self._running if process.poll() is None]
        with near, far:
            for sock in (near, far):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ends = (near.fileno(), far.fileno())
            words = [str(self.folder / CARRY), *map(str, ends)]
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=ends)
        self._running.append(process)

    def close(self) -> None:
        """End the connections that are carried."""
        for process in self._running:
            process.kill()
        for process in self._running:
            process.wait()


class Desk:
    """A Unix socket where the library, in a process of the same user, asks for connections."""

    def __init__(self) -> None:
        self.name = f"gputopo-{secrets.token_hex(16)}"
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Abstract: no file is left behind, and a network namespace has names of its own.
        self._sock.bind(f"\0{self.name}")
        self._sock.listen(128)
        self._listener: Listener | None = None

    def start(self, answer: Callable[[list[str]], Awaitable[socket.socket | None]]) -> None:
        """Answer from now on: `answer` gets the words of a question."""

        def is_ours(sock: socket.socket) -> bool:
            size = _CREDENTIALS.size
            who = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
            return bool(_CREDENTIALS.unpack(who)[1] == os.geteuid())

        async def one(sock: socket.socket) -> None:
            loop = asyncio.get_running_loop()
            with contextlib.suppress(TimeoutError, RemoteError):
                async with asyncio.timeout(QUESTION_S):
                    words = (await loop.sock_recv(sock, 256)).decode("ascii", "replace").split()
                if given := await answer(words):
                    with given:
                        socket.send_fds(sock, [b"y"], [given.fileno()])

        self._listener = Listener(self._sock, is_ours, one)

    def close(self) -> None:
        """Answer no more."""
        if self._listener is not None:
            self._listener.close()
        self._sock.close()


class Door:
    """Hands proven connections to the server that listens at these ports of loopback."""

    def __init__(self, tools: Tools, *ports: int) -> None:
        self._tools, self._ports = tools, ports
        self._desk = Desk()
        #: The server accepts by the library; known before it listens.
        self.is_taken_in = False
        #: By the address from which we knock: the proven connection, and the knock.
        self._waiting: dict[Place, tuple[socket.socket, socket.socket]] = {}
        self._desk.start(self._answer)

    def environment(self) -> dict[str, str]:
        """The server's environment."""
        before = os.environ.get("LD_PRELOAD", "")
        return {
            **os.environ,
            "LD_PRELOAD": f"{self._tools.library}:{before}".rstrip(":"),
            DOOR: " ".join(map(str, (self._desk.name, *self._ports))),
        }

    async def admit(self, proven: socket.socket, nth: int = 0) -> None:
        """Give the server a connection to its nth port; it is no longer ours.

        Raises OSError and Refused.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + KNOCK_S
        try:
            if nth >= len(self._ports):
                raise Refused(f"port {nth} of {len(self._ports)}")
            if len(self._waiting) >= WAITING:
                raise Refused(f"{WAITING} connections wait for the server already")
            while not await self._knocks(proven, self._ports[nth]):
                if loop.time() > end:
                    raise TimeoutError(f"the server took no connection for {KNOCK_S:g} s")
        except (OSError, RemoteError):
            proven.close()
            raise

    async def _knocks(self, proven: socket.socket, port: int) -> bool:
        """One try: False where the server's queue is full, and the kernel drops what comes.

        The kernel itself would not try again for a second, and rarer later.
        """
        knock = socket.socket()
        knock.setblocking(False)
        try:
            # Bound first: the server may ask as soon as it has accepted.
            knock.bind((LOOPBACK, 0))
            at = sockets.plain(knock.getsockname())
            if self.is_taken_in:
                self._waiting[at] = proven, knock
            async with asyncio.timeout(AGAIN_S):
                await asyncio.get_running_loop().sock_connect(knock, (LOOPBACK, port))
            if not self.is_taken_in:
                self._tools.carry(proven, knock)
        except TimeoutError:
            knock.close()
            # Where it waits no more, the server has asked and has it.
            return self.is_taken_in and self._waiting.pop(at, None) is None
        except BaseException:
            self._waiting = {key: pair for key, pair in self._waiting.items() if pair[1] != knock}
            knock.close()
            raise
        return True

    async def _answer(self, words: list[str]) -> socket.socket | None:
        """`L`: the server is about to listen. `A HOST PORT`: who is this that I accepted?"""
        if words == ["L"]:
            self.is_taken_in = True
        if len(words) != 3 or words[0] != "A" or not words[2].isdecimal():
            return None
        try:
            at = sockets.plain((words[1], int(words[2])))
        except ValueError:
            return None
        proven, knock = self._waiting.pop(at, (None, None))
        if knock is not None:
            knock.close()
        return proven

    def close(self) -> None:
        """Hang up on who waits, and on what is carried."""
        self._desk.close()
        self._tools.close()
        for pair in self._waiting.values():
            for sock in pair:
                sock.close()
