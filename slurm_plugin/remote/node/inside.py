"""A server that listens on every address, in a network of its own, where nobody can reach it.

`unshare` starts this program in namespaces with nothing but a loopback device, where it starts the
server. For each connection, handed in as a file descriptor over a Unix socket, it opens one to
the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import signal
import socket
import struct
import subprocess
from collections.abc import Sequence

from slurm_plugin.remote.errors import RemoteError
from slurm_plugin.remote.node import sockets, streams
from slurm_plugin.remote.node.sockets import LOOPBACK
from slurm_plugin.remote.node.streams import Streams

UNSHARE = ("unshare", "--user", "--map-root-user", "--net", "--kill-child=KILL", "--")
#: What is sent over the Unix socket: a connection for the port so far behind the first, or the
#: question whether the server listens.
CONNECT, ASK, YES, NO = b"c", b"?", b"y", b"n"
_PR_SET_PDEATHSIG = 1
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 0x1, 0x40


def check() -> None:
    """Raises RemoteError where this node allows no network namespace."""
    try:
        done = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise RemoteError(f"unshare: {error.strerror or error}") from error
    if done.returncode:
        raise RemoteError((done.stderr.strip().splitlines() or ["unshare failed"])[0])


class Outside:
    """The donor's side of the Unix socket."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.settimeout(5.0)

    def command(self, program: str, port: int, server: Sequence[str]) -> list[str]:
        """What to run instead of `server`, with `fd` passed on."""
        return [*UNSHARE, program, "inside", str(self.fd), str(port), *server]

    @property
    def fd(self) -> int:
        """The end that the program inside gets."""
        return self._theirs.fileno()

    def handed_over(self) -> None:
        """The program inside has its end. Our copy of it is closed, so that its death shows."""
        self._theirs.close()

    def listens(self) -> bool:
        """Does the server listen? Raises RemoteError where the program inside has ended."""
        try:
            self._ours.send(ASK)
            answer = self._ours.recv(16)
        except OSError as error:
            raise RemoteError(f"its network namespace is gone: {error}") from error
        if not answer:
            raise RemoteError("its network namespace is gone")
        return answer == YES

    async def reach(self, nth: int = 0) -> Streams:
        """A connection to the server's nth port inside; OSError where that has ended."""
        near, far = socket.socketpair()
        with far:
            socket.send_fds(self._ours, [CONNECT + bytes([nth])], [far.fileno()])
        return await asyncio.open_connection(sock=near)

    def close(self) -> None:
        """Hang up."""
        self._ours.close()
        self._theirs.close()


def end_with_parent() -> None:
    """For a process about to start a server: it dies with its parent, however that dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(argv: Sequence[str]) -> int:
    """`inside FD PORT SERVER...`: until the server ends, or the donor hangs up."""
    control = socket.socket(fileno=int(argv[0]))
    _raise_loopback()
    return asyncio.run(_run(control, int(argv[1]), argv[2:]))


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sh22x", b"lo", _IFF_UP | _IFF_RUNNING)
        fcntl.ioctl(probe, _SIOCSIFFLAGS, request)


async def _run(control: socket.socket, port: int, command: Sequence[str]) -> int:
    loop = asyncio.get_running_loop()
    # This process is killed when unshare ends; the server must not outlive it.
    server = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, preexec_fn=end_with_parent
    )
    hung_up = asyncio.Event()
    carried: set[asyncio.Task[None]] = set()

    def heard() -> None:
        try:
            word, fds, _, _ = socket.recv_fds(control, 16, 4)
        except OSError:
            word, fds = b"", []
        if word == ASK:
            control.send(YES if sockets.listener(port) is not None else NO)
        for fd in fds:
            task = loop.create_task(_carry(socket.socket(fileno=fd), port + word[1]))
            carried.add(task)
            task.add_done_callback(carried.discard)
        if not word:
            hung_up.set()

    loop.add_reader(control.fileno(), heard)
    loop.add_signal_handler(signal.SIGTERM, hung_up.set)
    waits = [asyncio.ensure_future(server.wait()), asyncio.ensure_future(hung_up.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    with contextlib.suppress(ProcessLookupError):
        server.kill()
    return server.returncode or 0


async def _carry(sock: socket.socket, port: int) -> None:
    near = await asyncio.open_connection(sock=sock)
    try:
        far = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        streams.close(near[1])
        return
    await streams.join(near, far)
