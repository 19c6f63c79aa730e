"""The page's process: it listens, reads while somebody looks, and ends at SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aiohttp import web

from slurm_plugin.base.notify import Notifier
from slurm_plugin.errors import PluginError, RemoteError, in_one_line
from slurm_plugin.node.remote import sockets
from slurm_plugin.tell.web.clients.guard import REFUSAL
from slurm_plugin.tell.web.feed import Feed
from slurm_plugin.tell.web.identity import Identities, is_loopback
from slurm_plugin.tell.web.server import Page, application
from slurm_plugin.tell.web.sources import Sources
from slurm_plugin.tell.web.utilisation.prometheus import Prometheus

logger = logging.getLogger(__name__)

#: Giant headers are refused by aiohttp at these sizes, in bytes.
MAX_LINE, MAX_FIELD = 4096, 8190
#: The most that a connection may send: one request, whose answer is the connection's last.
MAX_BYTES = 12288
#: Connections that may wait to be let in: more than one user can keep there.
BACKLOG = 1024
#: Seconds between two looks at the log while nobody asks for anything of it.
FOLLOW_S = 5.0
#: Seconds between two lines of the log about requests that could not be read.
SELDOM_S = 60.0
#: Seconds for an orderly end; then whatever a thread still waits for is left.
END_S = 1.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: a Unix socket's path, or a host and a port."""

    path: str = ""
    host: str = ""
    port: int = 0


def address_in(text: str) -> Address:
    """`unix:PATH` or `HOST:PORT`, `[::1]:PORT` included. Raises PluginError."""
    if text.startswith("unix:/"):
        return Address(path=text.removeprefix("unix:"))
    host, _, port = text.rpartition(":")
    if host and port.isdecimal() and int(port) < 65536:
        return Address(host=host.strip("[]"), port=int(port))
    raise PluginError(f"--listen {text!r}: expected unix:/PATH or ADDRESS:PORT")


def checked(addresses: Sequence[Address], who: Identities) -> None:
    """Raises PluginError where nobody who comes that way could be told who they are."""
    for address in addresses:
        if address.path and not who.header:
            raise PluginError("a Unix socket needs --user-header: only its proxy knows who looks")
        if not address.path and not is_loopback(address.host) and not (who.header and who.proxies):
            raise PluginError(
                f"--listen {address.host}:{address.port} is reached from other hosts: it needs"
                " --user-header and --proxy, or listen on 127.0.0.1"
            )


def _check_kernel(addresses: Sequence[Address], who: Identities) -> None:
    """Raises PluginError where this host's own users are to look, and its kernel tells of none."""
    own = next((one for one in addresses if is_loopback(one.host)), None)
    if own is None or who.owner is not sockets.owner_of:
        return
    try:
        with socket.create_server((sockets.LOOPBACK, 0)) as listening:
            sockets.check(listening)
    except RemoteError as error:
        raise PluginError(
            f"--listen {own.host}:{own.port}: {error}; without it a reverse proxy has to say who"
            " looks (--listen unix:/PATH --user-header NAME)"
        ) from error


async def serve(
    sources: Sources,
    who: Identities,
    addresses: Sequence[Address],
    socket_group: str = "",
    prometheus: str = "",
) -> None:
    """Serve until SIGTERM or SIGINT; `prometheus` is asked for GPUs in use, '' is nobody.

    Raises PluginError where an address cannot be had, or nobody could be told who they are.
    """
    checked(addresses, who)
    _check_kernel(addresses, who)
    asked = Prometheus(prometheus) if prometheus else None
    page = Page(Feed(sources), who, prometheus=asked)
    runner = web.AppRunner(
        application(page),
        access_log=None,
        handle_signals=False,
        max_line_size=MAX_LINE,
        max_field_size=MAX_FIELD,
    )
    logging.getLogger("aiohttp.server").addFilter(_Seldom())
    await runner.setup()
    assert runner.server is not None
    notifier, ended = Notifier(), asyncio.Event()
    loops = (page.feed.run(), page.clients.sweep(runner.server), _follow(sources))
    tasks = [asyncio.create_task(one) for one in loops]
    listening: list[asyncio.Server] = []
    try:
        for address in addresses:
            door = partial(_Door, page, runner.server)
            listening.append(await _listen(door, address, socket_group))
            logger.info("the page is at %s", _place(listening[-1], address))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _end, ended)
        notifier.ready("listening")
        await _until(ended, tasks)
    finally:
        notifier.stopping()
        for server in listening:
            server.close()
        for task in tasks:
            task.cancel()
        # Streams of events have no end that one could wait for.
        page.clients.close_all(runner.server)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(runner.cleanup(), END_S)


class _Door(asyncio.Protocol):
    """Where a connection comes in: nothing is read of one that may not stay, and little of others.

    Before its release 3.14 aiohttp keeps any number of requests that come before an answer.
    """

    def __init__(self, page: Page, server: web.Server) -> None:
        self._page, self._server = page, server
        self._left = MAX_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.inner: asyncio.Protocol = asyncio.Protocol()
        if self._page.admits(transport):
            self.inner = self._server()
            self.inner.connection_made(transport)
        else:
            transport.write(REFUSAL)
            transport.close()

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self._transport.abort()
        else:
            self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self.inner.connection_lost(error)

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()


def _end(ended: asyncio.Event) -> None:
    """In good order, or else without waiting for threads: the page holds nothing to be saved."""
    ended.set()
    timer = threading.Timer(END_S, os._exit, (0,))
    timer.daemon = True
    timer.start()


async def _follow(sources: Sources) -> None:
    """Keep up with the log, so that who asks need not wait for it."""
    while True:
        # Who may not read it is told so by the page.
        with contextlib.suppress(OSError):
            await asyncio.to_thread(sources.follow)
        await asyncio.sleep(FOLLOW_S)


async def _until(ended: asyncio.Event, tasks: list[asyncio.Task[None]]) -> None:
    """Wait for the end; a task that failed ends everything with its error."""
    waiter = asyncio.create_task(ended.wait())
    done, _ = await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    for task in done:
        task.result()


class _Seldom(logging.Filter):
    """Of requests that could not be read, which anybody sends: a line a minute, no traceback."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written, and as what."""
        if record.levelno < logging.WARNING:
            return True
        if record.created < self._next:
            return False
        self._next = record.created + SELDOM_S
        said = record.exc_info[1] if record.exc_info else record.getMessage()
        record.msg, record.args = "a request could not be read: %.200s", (in_one_line(str(said)),)
        record.exc_info = record.exc_text = None
        return True


async def _listen(
    door: Callable[[], asyncio.Protocol], address: Address, group: str
) -> asyncio.Server:
    """Open one address. Raises PluginError."""
    loop = asyncio.get_running_loop()
    try:
        if not address.path:
            # A browser takes `localhost` for ::1 first: there somebody else's page could ask ours.
            is_both = address.host == "127.0.0.1" and address.port and _has_ipv6_loopback()
            hosts = [address.host, "::1"] if is_both else [address.host]
            return await loop.create_server(door, hosts, address.port, backlog=BACKLOG)
        # Nobody but the owner until the group is set.
        before = os.umask(0o177)
        try:
            server = await loop.create_unix_server(door, address.path, backlog=BACKLOG)
        finally:
            os.umask(before)
        _open_to(Path(address.path), group)
        return server
    except (OSError, KeyError) as error:
        where = address.path or f"{address.host}:{address.port}"
        raise PluginError(f"--listen {where}: {error}") from error


def _has_ipv6_loopback() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def _place(server: asyncio.Server, address: Address) -> str:
    """Where it listens, for people."""
    port = "" if address.path else server.sockets[0].getsockname()[1]
    return address.path or f"http://{address.host}:{port}/"


def _open_to(path: Path, group: str) -> None:
    """Let the group write, which is all that a proxy needs."""
    if group:
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
    path.chmod(0o660)
