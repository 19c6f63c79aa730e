"""A server that listens on every address, in a network of its own, where nobody can reach it.

`unshare` starts this program in namespaces with nothing but a loopback device, where it starts the
server. Connections from outside are handed in as file descriptors over a Unix socket, and from here
to the server.
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

from slurm_plugin.errors import RemoteError
from slurm_plugin.node.remote import sockets
from slurm_plugin.node.remote.door import Door, Tools

UNSHARE = ("unshare", "--user", "--map-root-user", "--net", "--kill-child=KILL", "--")
#: What is sent over the Unix socket: a connection for the port so far behind the first, or the
#: question whether the server listens at all of them.
CONNECT, ASK, YES, NO = b"c", b"?", b"y", b"n"
#: So long a server that is asked to end may take, in seconds.
ENDS_S = 2.0
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

    def command(self, program: str, ports: range, server: Sequence[str]) -> list[str]:
        """What to run instead of `server`, which has these ports, with `fd` passed on."""
        numbers = map(str, (self.fd, ports.start, len(ports)))
        return [*UNSHARE, program, "inside", *numbers, *server]

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

    async def admit(self, proven: socket.socket, nth: int = 0) -> None:
        """Give the server inside a connection to its nth port; it is no longer ours.

        Raises OSError where the server ended.
        """
        with proven:
            socket.send_fds(self._ours, [CONNECT + bytes([nth])], [proven.fileno()])

    def close(self) -> None:
        """Close the connection."""
        self._ours.close()
        self._theirs.close()


def end_with_parent() -> None:
    """For a process about to start a server: it dies with its parent, however that dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(argv: Sequence[str], program: str) -> int:
    """`inside FD PORT COUNT SERVER...`: until the server ends, or the donor hangs up."""
    control = socket.socket(fileno=int(argv[0]))
    _raise_loopback()
    ports = range(int(argv[1]), int(argv[1]) + int(argv[2]))
    return asyncio.run(_run(control, ports, argv[3:], Tools.beside(program)))


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sh22x", b"lo", _IFF_UP | _IFF_RUNNING)
        fcntl.ioctl(probe, _SIOCSIFFLAGS, request)


async def _run(control: socket.socket, ports: range, command: Sequence[str], tools: Tools) -> int:
    loop = asyncio.get_running_loop()
    door = Door(tools, *ports)
    # This process is killed when unshare ends; the server must not outlive it.
    server = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        preexec_fn=end_with_parent,
        env=door.environment(),
    )
    hung_up = asyncio.Event()
    admitted: set[asyncio.Task[None]] = set()

    def heard() -> None:
        try:
            word, fds, _, _ = socket.recv_fds(control, 16, 4)
        except OSError:
            word, fds = b"", []
        if word == ASK:
            listens = all(sockets.listener(port) is not None for port in ports)
            control.send(YES if listens else NO)
        for fd in fds:
            task = loop.create_task(_admit(door, socket.socket(fileno=fd), word[1]))
            admitted.add(task)
            task.add_done_callback(admitted.discard)
        if not word:
            hung_up.set()

    loop.add_reader(control.fileno(), heard)
    loop.add_signal_handler(signal.SIGTERM, hung_up.set)
    waits = [asyncio.ensure_future(server.wait()), asyncio.ensure_future(hung_up.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    with contextlib.suppress(ProcessLookupError, TimeoutError):
        server.terminate()
        await asyncio.wait_for(server.wait(), ENDS_S)
    with contextlib.suppress(ProcessLookupError):
        server.kill()
    door.close()
    return server.returncode or 0


async def _admit(door: Door, proven: socket.socket, nth: int) -> None:
    with contextlib.suppress(OSError, TimeoutError, RemoteError):
        await door.admit(proven, nth)
