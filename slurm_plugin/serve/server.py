"""The socket side: lines in, lines out, whatever a client does.

A line over the limit, a half line that never ends, a client that never reads its replies: each
costs that client its connection and nobody else anything. An `Answerer` says what a line means.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import stat
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import NamedTuple, cast

from slurm_plugin.base.protocol import MAX_REQUEST_BYTES, Error
from slurm_plugin.errors import PluginError

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
HALF_LINE_S = 10.0
UNREAD_REPLY_BYTES = 256 << 10
UNREAD_REPLY_S = 10.0
#: SlurmUser's and root's alone: whoever may connect fills the queue that slurmctld waits in, and
#: keeps the loop busy that answers it. Others read a file (`slurm_plugin.base.client.status_file`).
SOCKET_MODE = 0o600
#: Lines answered before other connections get their turn.
LINES_PER_TURN = 16
#: What replies leave to do waits until no line came for so long (seconds): the next one may be the
#: same scheduler's, which holds Slurm's locks.
QUIET_S = 0.005
#: Said unasked (docs/protocol.md).
SCHEDULE = b"schedule\n"
#: So much may wait; of more, one is done after each line.
MOST_LEFT = 1000


class LineAnswer(NamedTuple):
    """The reply to a line of a client, and what is to be done besides."""

    #: None: no reply.
    reply: bytes | None
    #: Hang up after it.
    close: bool = False
    #: To be done once the reply is written and no more lines come at once; again while it says so.
    after: Callable[[], bool | None] | None = None
    #: A reply that takes a while; other lines are answered meanwhile.
    later: Coroutine[None, None, bytes] | None = None
    #: The client takes what `LineServer.ask_for_pass` says.
    hears: bool = False


#: Answers one request line (without its LF). Never raises.
Answerer = Callable[[bytes], LineAnswer]


class Connection(asyncio.Protocol):
    """One client: cuts lines, answers them in order, hangs up on abuse."""

    def __init__(self, server: LineServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._searched = 0
        self._paused = False
        self.hears = False
        self._turn_pending = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came; one too many is sent away."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=UNREAD_REPLY_BYTES)
        # The kernel lets nobody else connect, unless somebody changed the socket's mode.
        if (uid := peer_uid(self.transport)) not in self._server.own_uids:
            self._server.refuse(self.transport, uid)
            return
        connections = self._server.connections
        connections.add(self)
        if len(connections) > MAX_CONNECTIONS:
            self._hang_up(f"more than {MAX_CONNECTIONS} connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio says that the client's connection is closed; its answers are dropped."""
        self._server.connections.discard(self)
        self._stop_timer()

    def data_received(self, data: bytes) -> None:
        """Bytes came: answer every whole line among them."""
        self._buffer += data
        self._work()

    def pause_writing(self) -> None:
        """The client does not read its replies: stop taking its questions."""
        self._paused = True
        self.transport.pause_reading()
        self._start_timer(UNREAD_REPLY_S, self._never_read)

    def resume_writing(self) -> None:
        """The client read: go on, unless it was hung up on."""
        if self.transport.is_closing():
            return
        self._paused = False
        self._stop_timer()
        self.transport.resume_reading()
        self._work()

    def _work(self) -> None:
        for _ in range(LINES_PER_TURN):
            if self._paused or self._turn_pending or self.transport.is_closing():
                return
            end = self._buffer.find(b"\n", self._searched)
            if end < 0:
                self._searched = len(self._buffer)
                self._await_rest()
                return
            self._stop_timer()
            line = bytes(memoryview(self._buffer)[:end])
            del self._buffer[: end + 1]
            self._searched = 0
            if len(line) >= MAX_REQUEST_BYTES:
                self._hang_up(f"the line is longer than {MAX_REQUEST_BYTES} bytes")
                return
            self._answer(line)
        self._turn_pending = True
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_pending = False
        self._work()

    def _answer(self, line: bytes) -> None:
        self._server.line_at = asyncio.get_running_loop().time()
        answer = self._server.answer(line)
        self.hears |= answer.hears
        if answer.reply is not None:
            self.transport.write(answer.reply)
        if answer.after is not None:
            self._server.leave(answer.after)
        if answer.later is not None:
            self._server.keep(asyncio.ensure_future(self._reply_later(answer.later)))
        if answer.close:
            self._close()

    async def _reply_later(self, later: Coroutine[None, None, bytes]) -> None:
        reply = await later
        if not self.transport.is_closing():
            self.transport.write(reply)

    def _await_rest(self) -> None:
        if len(self._buffer) >= MAX_REQUEST_BYTES:
            self._hang_up(f"the line is longer than {MAX_REQUEST_BYTES} bytes")
        elif self._buffer and self._timer is None:
            self._start_timer(HALF_LINE_S, self._never_ended)
        elif not self._buffer:
            self._stop_timer()

    def _hang_up(self, why: str) -> None:
        logger.warning("hung up on a client: %s", why)
        self._buffer.clear()
        self.transport.write(Error(why).encode(0))
        self._close()

    def _close(self) -> None:
        """Hang up once the replies are read, if they are read in time."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._start_timer(UNREAD_REPLY_S, self._never_read)

    def _never_ended(self) -> None:
        self._timer = None
        self._hang_up(f"a line did not end within {HALF_LINE_S:g} s")

    def _never_read(self) -> None:
        logger.warning("hung up on a client that did not read for %g s", UNREAD_REPLY_S)
        self.transport.abort()

    def _start_timer(self, seconds: float, act: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, act)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class LineServer:
    """Listens on a Unix socket and hands every line to `answer`."""

    def __init__(self, path: Path, answer: Answerer) -> None:
        self.path = path
        self.answer = answer
        self.connections: set[Connection] = set()
        #: The engine runs as SlurmUser, as slurmctld does.
        self.own_uids = {0, os.geteuid()}
        #: Connections of others that were closed.
        self.refused = 0
        self._server: asyncio.Server | None = None
        self._identity: tuple[int, int] | None = None
        self._tasks: set[asyncio.Future[None]] = set()
        #: What replies left to do, the oldest first, and when the last line came.
        self._left: deque[Callable[[], bool | None]] = deque()
        self.line_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def refuse(self, transport: asyncio.Transport, uid: int) -> None:
        """Hang up on a user who may not ask, and keep nothing for it."""
        self.refused += 1
        # The second, fourth, eighth, ...: a line for each would be a flood of lines.
        if not self.refused & (self.refused - 1):
            logger.warning(
                "hung up on uid %d, %d times on others than root and SlurmUser; chmod %04o %s",
                uid,
                self.refused,
                SOCKET_MODE,
                self.path,
            )
        transport.write(Error(f"uid {uid} may not ask; root and SlurmUser may").encode(0))
        transport.abort()

    def leave(self, work: Callable[[], bool | None]) -> None:
        """Do this when no line came for a moment, after what was left before."""
        self._left.append(work)
        loop = asyncio.get_running_loop()
        if len(self._left) > MOST_LEFT:
            loop.call_soon(self._do_one)
        if self._timer is None:
            self._timer = loop.call_later(QUIET_S, self._if_quiet)

    def _if_quiet(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        left_s = self.line_at + QUIET_S - loop.time()
        if left_s <= 0:
            self._do_one()
            left_s = 0.0
        if self._left:
            self._timer = loop.call_later(left_s, self._if_quiet)

    def _do_one(self) -> None:
        if not self._left:
            return
        work = self._left.popleft()
        if work() and len(self._left) < MOST_LEFT:
            self._left.append(work)

    def ask_for_pass(self) -> None:
        """Ask the slurmctlds that told us their nodes to look at their queues now."""
        for connection in self.connections:
            if connection.hears and not connection.transport.is_closing():
                connection.transport.write(SCHEDULE)

    def keep(self, task: asyncio.Future[None]) -> None:
        """Hold a reference until the task is done: asyncio itself holds none."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def start(self) -> None:
        """Listen; raises PluginError when the path is in use by a live engine or cannot be made."""
        listener = bind(self.path)
        info = self.path.stat()
        self._identity = (info.st_dev, info.st_ino)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: Connection(self), sock=listener)

    async def stop(self) -> None:
        """Take no more clients, let written replies drain, remove our socket file."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self.connections):
            connection.transport.close()
        for work in self._left:
            work()
        await asyncio.sleep(0)
        try:
            info = self.path.lstat()
            # A successor may already listen under the same name: leave its file alone.
            if (info.st_dev, info.st_ino) == self._identity:
                self.path.unlink()
        except FileNotFoundError:
            pass


def peer_uid(transport: asyncio.Transport) -> int:
    """Who connected, as the kernel reports it."""
    sock = transport.get_extra_info("socket")
    _, uid, _ = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)


def bind(path: Path) -> socket.socket:
    """A listening socket at `path`, mode 0600 from its first moment.

    A stale file (nobody answers) is replaced; anything else there is refused.
    """
    _clear(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old_mask = os.umask(0o777 & ~SOCKET_MODE)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise PluginError(
            f"{path}: cannot listen: {error.strerror or error}; the directory must exist and"
            " belong to SlurmUser (the systemd unit makes it)"
        ) from error
    finally:
        os.umask(old_mask)
    listener.listen(128)
    listener.setblocking(False)
    return listener


def _clear(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise PluginError(f"{path}: exists and is not a socket; move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            if error.errno == errno.ENOENT:
                return
            raise PluginError(f"{path}: cannot tell whether an engine listens: {error}") from error
    raise PluginError(f"{path}: another engine answers there; stop it first")
