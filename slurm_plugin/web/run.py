"""The page's process: it listens, reads while somebody looks, and ends at SIGTERM."""

from __future__ import annotations

import asyncio
import grp
import logging
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from slurm_plugin.errors import PluginError
from slurm_plugin.notify import Notifier
from slurm_plugin.web.feed import Feed
from slurm_plugin.web.identity import Identities, is_loopback
from slurm_plugin.web.server import Page, application
from slurm_plugin.web.sources import Sources

logger = logging.getLogger(__name__)

#: Giant headers are refused by aiohttp at these sizes, in bytes.
MAX_LINE, MAX_FIELD = 4096, 8190
#: Seconds a browser's connection is kept for its next request.
KEEP_ALIVE_S = 15.0


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


async def serve(
    sources: Sources,
    who: Identities,
    addresses: Sequence[Address],
    socket_group: str = "",
) -> None:
    """Serve until SIGTERM or SIGINT. Raises PluginError where an address cannot be had."""
    checked(addresses, who)
    page = Page(Feed(sources), who)
    runner = web.AppRunner(
        application(page),
        access_log=None,
        handle_signals=False,
        keepalive_timeout=KEEP_ALIVE_S,
        max_line_size=MAX_LINE,
        max_field_size=MAX_FIELD,
    )
    await runner.setup()
    assert runner.server is not None
    notifier, ended = Notifier(), asyncio.Event()
    tasks = [
        asyncio.create_task(one) for one in (page.feed.run(), page.clients.sweep(runner.server))
    ]
    try:
        for address in addresses:
            logger.info("the page is at %s", await _listen(runner, address, socket_group))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        notifier.ready("listening")
        await _until(ended, tasks)
    finally:
        notifier.stopping()
        for task in tasks:
            task.cancel()
        # Streams of events have no end that one could wait for.
        page.clients.close_all(runner.server)
        await runner.cleanup()


async def _until(ended: asyncio.Event, tasks: list[asyncio.Task[None]]) -> None:
    """Wait for the end; a task that failed ends everything with its error."""
    waiter = asyncio.create_task(ended.wait())
    done, _ = await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    for task in done:
        task.result()


async def _listen(runner: web.AppRunner, address: Address, group: str) -> str:
    """Open one address; its text for people."""
    try:
        if not address.path:
            site = web.TCPSite(runner, address.host, address.port)
            await site.start()
            assert site._server is not None
            port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
            return f"http://{address.host}:{port}/"
        # Nobody but the owner until the group is set.
        before = os.umask(0o177)
        try:
            await web.UnixSite(runner, address.path).start()
        finally:
            os.umask(before)
        _open_to(Path(address.path), group)
        return address.path
    except (OSError, KeyError) as error:
        where = address.path or f"{address.host}:{address.port}"
        raise PluginError(f"--listen {where}: {error}") from error


def _open_to(path: Path, group: str) -> None:
    """Let the group write, which is all that a proxy needs."""
    if group:
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
    path.chmod(0o660)
