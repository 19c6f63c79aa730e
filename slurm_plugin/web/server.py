"""The page's answers: one page, its files, JSON about the site, and a stream of what changes."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from aiohttp import web

from gres_topology.pictures import theme
from slurm_plugin.web.details import Details, NotFound
from slurm_plugin.web.feed import Busy, Feed
from slurm_plugin.web.gain import GainBook
from slurm_plugin.web.guard import HEADERS, Clients, is_own_host, with_headers
from slurm_plugin.web.identity import (
    Connection,
    Identities,
    Refused,
    Viewer,
    is_loopback,
    plain_address,
)

logger = logging.getLogger(__name__)

#: File name's end -> its type; nothing else is given out.
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
#: Seconds that a client has to take one event.
TAKE_S = 15.0
#: Details are looked up by so many threads at a time for all viewers together.
MAX_LOOKS = 4
_NODE = re.compile(r"[\w.-]{1,255}\Z", re.ASCII)


@dataclass(slots=True)
class Page:
    """What the handlers share."""

    feed: Feed
    identities: Identities
    clients: Clients = field(default_factory=Clients)
    looks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_LOOKS))
    gain_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    gains: GainBook = field(init=False)
    files: dict[str, bytes] = field(default_factory=lambda: _files())

    def __post_init__(self) -> None:
        self.gains = GainBook(self.feed.sources.all_records, self.feed.sources.name_of)

    # -- who asks ------------------------------------------------------------

    def viewer(self, request: web.Request) -> Viewer:
        """Who asks; HTTPForbidden where that is not known."""
        connection = connection_of(request)
        header = self.identities.header
        if is_loopback(plain_address(connection.peer[0])) and not is_own_host(request):
            raise web.HTTPForbidden(text="ask by 127.0.0.1 or localhost\n")
        names = request.headers.getall(header, []) if header else []
        try:
            return self.identities.viewer(connection, names)
        except Refused as error:
            raise web.HTTPForbidden(text=f"{error}\n") from None

    # -- the page and its files ----------------------------------------------

    async def index(self, request: web.Request) -> web.Response:
        """The one page; what it shows stands behind the # of its address."""
        viewer = self.viewer(request)
        text = _template().render(viewer=viewer, notices=self.feed.sources.notices)
        return web.Response(text=text, content_type="text/html")

    async def static(self, request: web.Request) -> web.Response:
        """A file of ours by its name; there is no other way to name one."""
        name = request.match_info["name"]
        if name not in self.files:
            raise web.HTTPNotFound(text="no such file\n")
        kind = TYPES[name[name.rindex(".") :]]
        response = web.Response(body=self.files[name], content_type=kind, charset="utf-8")
        response.enable_compression()
        return response

    # -- data ----------------------------------------------------------------

    async def state(self, request: web.Request) -> web.Response:
        """Everything that the viewer may see, once."""
        viewer = self.viewer(request)
        response = web.Response(
            body=await self._whole(viewer), content_type="application/json", charset="utf-8"
        )
        response.enable_compression()
        return response

    async def _whole(self, viewer: Viewer) -> bytes:
        try:
            return await self.feed.whole(viewer.kind)
        except Busy as error:
            raise _unavailable(str(error)) from None

    async def events(self, request: web.Request) -> web.StreamResponse:
        """The same as a stream of server-sent events, for as long as the client takes them."""
        viewer = self.viewer(request)
        with self.clients.stream_of(viewer):
            await self._whole(viewer)
            response = web.StreamResponse(headers={"X-Accel-Buffering": "no"})
            response.content_type, response.charset = "text/event-stream", "utf-8"
            response.headers.update(HEADERS)
            await response.prepare(request)
            stream = self.feed.events(viewer.kind)
            try:
                async for kind, text in stream:
                    line = b"event: %s\ndata: %s\n\n" % (kind.encode(), text)
                    await asyncio.wait_for(response.write(line), TAKE_S)
            except (TimeoutError, ConnectionError, Busy):
                if request.transport is not None:
                    request.transport.abort()
            finally:
                await stream.aclose()  # type: ignore[attr-defined]  # an async generator
        return response

    async def job(self, request: web.Request) -> web.Response:
        """One job in full."""
        text = request.match_info["number"]
        return await self._details(request, lambda look, uid: look.job(int(text), uid))

    async def node(self, request: web.Request) -> web.Response:
        """One node in full."""
        name = request.match_info["name"]
        if not _NODE.match(name):
            raise web.HTTPNotFound(text="no such node\n")
        return await self._details(request, lambda look, uid: look.node(name, uid))

    async def _details(
        self, request: web.Request, look: Callable[[Details, int | None], dict[str, Any]]
    ) -> web.Response:
        viewer = self.viewer(request)
        await self._whole(viewer)
        reading = self.feed.reading
        assert reading is not None
        details = Details(self.feed.sources, reading)
        try:
            async with self.looks:
                answer = await asyncio.to_thread(look, details, viewer.kind)
        except NotFound as error:
            raise web.HTTPNotFound(text=f"{error}: none that you may see\n") from None
        return web.json_response(answer)

    async def gain(self, request: web.Request) -> web.Response:
        """What was gained against Slurm's own choice."""
        viewer = self.viewer(request)
        try:
            async with self.gain_lock:
                gains = await asyncio.to_thread(self.gains.summary, viewer.kind)
        except OSError as error:
            raise _unavailable(f"the decision log cannot be read: {error.strerror}") from None
        return web.json_response(gains)


def application(page: Page) -> web.Application:
    """All that is answered; every path takes GET alone."""
    app = web.Application(middlewares=[with_headers, page.clients.watched], client_max_size=1024)
    app.add_routes(
        [
            web.get("/", page.index),
            web.get(r"/static/{name:[\w.-]{1,64}}", page.static),
            web.get("/api/state", page.state),
            web.get("/api/events", page.events),
            web.get(r"/api/job/{number:[1-9]\d{0,9}}", page.job),
            web.get("/api/node/{name}", page.node),
            web.get("/api/gain", page.gain),
        ]
    )
    return app


def connection_of(request: web.Request) -> Connection:
    """Where the request came from, by its socket and never by what it says."""
    transport = request.transport
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None:
        raise web.HTTPForbidden(text="the connection is gone\n")
    if sock.family == socket.AF_UNIX:
        return Connection(socket.AF_UNIX)
    assert transport is not None
    peer, own = (transport.get_extra_info(key) for key in ("peername", "sockname"))
    return Connection(sock.family, tuple(peer[:2]), tuple(own[:2]))


def _unavailable(problem: str) -> web.HTTPServiceUnavailable:
    return web.HTTPServiceUnavailable(text=f"{problem}\n", headers={"Retry-After": "2"})


def _files() -> dict[str, bytes]:
    """Every file of the page by name, and the style of pictures."""
    folder = resources.files("slurm_plugin.web") / "static"
    files = {
        entry.name: entry.read_bytes()
        for entry in folder.iterdir()
        if entry.name.endswith(tuple(TYPES))
    }
    return files | {"pictures.css": theme.css().encode()}


@cache
def _template() -> jinja2.Template:
    folder = resources.files("slurm_plugin.web") / "templates"
    text = (folder / "page.html").read_text(encoding="utf-8")
    return jinja2.Environment(autoescape=True).from_string(text)
