"""The page's answers: one page, its files, JSON about the site, and a stream of what changes."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import resources
from typing import Any

import jinja2
from aiohttp import web

from gres_topology.pictures import theme
from slurm_plugin.tell.explain.search import Stopped
from slurm_plugin.tell.web.clients.guard import HEADERS, Clients, is_own_host, with_headers
from slurm_plugin.tell.web.clients.turns import ClientTurns, TooMany
from slurm_plugin.tell.web.clients.waiting import PIECE, Waiting, in_pieces
from slurm_plugin.tell.web.details import Details, NotFound
from slurm_plugin.tell.web.feed import Busy, Feed
from slurm_plugin.tell.web.free_week import FreeWeek
from slurm_plugin.tell.web.gain import GainBook
from slurm_plugin.tell.web.identity import (
    SECRET_HEADER,
    Identities,
    PageConnection,
    UnknownViewer,
    Viewer,
    is_loopback,
    plain_address,
)
from slurm_plugin.tell.web.utilisation.prometheus import Prometheus
from slurm_plugin.tell.web.utilisation.shown import ShownUse

logger = logging.getLogger(__name__)

#: File name's end -> its type; nothing else is given out.
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
#: Seconds that a client has to take one event, or the whole.
TAKE_S = 15.0
#: Seconds in which this host has to say which user a login name is, and so many asked at a time.
NAMED_S, MAX_NAMED = 5.0, 4
_NODE = re.compile(r"[\w.-]{1,255}\Z", re.ASCII)


@dataclass(slots=True)
class Page:
    """The page's server: what all requests share."""

    feed: Feed
    identities: Identities
    clients: Clients = field(default_factory=Clients)
    turns: ClientTurns = field(default_factory=ClientTurns)
    waiting: Waiting = field(default_factory=Waiting)
    #: Whom to ask how much of the GPUs is in use; None: nobody.
    prometheus: Prometheus | None = None
    gains: GainBook = field(init=False)
    week_of_free: FreeWeek = field(init=False)
    summing_up: asyncio.Future[None] | None = None
    files: dict[str, bytes] = field(default_factory=lambda: _files())
    #: Looks users up: a directory that is away, LDAP's say, keeps these threads and nothing else.
    naming: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(MAX_NAMED, "naming")
    )

    def __post_init__(self) -> None:
        self.gains = GainBook(self.feed.sources.all_records, self.feed.sources.name_of)
        self.week_of_free = FreeWeek(self.feed.sources.free_readings)

    # -- who asks ------------------------------------------------------------

    async def viewer(self, request: web.Request) -> Viewer:
        """Who asks.

        HTTPForbidden where that is not known, HTTPTooManyRequests beyond a share,
        HTTPServiceUnavailable where this host's list of users does not answer.
        """
        connection = connection_of(request.transport)
        header = self.identities.header
        if is_loopback(plain_address(connection.peer[0])) and not is_own_host(request):
            raise web.HTTPForbidden(text="ask by 127.0.0.1 or localhost\n")
        names = request.headers.getall(header, []) if header else []
        secrets = request.headers.getall(SECRET_HEADER, [])
        look = partial(self.identities.viewer, connection, names, secrets)
        loop = asyncio.get_running_loop()
        try:
            viewer = await asyncio.wait_for(loop.run_in_executor(self.naming, look), NAMED_S)
        except UnknownViewer as error:
            raise web.HTTPForbidden(text=f"{error}\n") from None
        except TimeoutError:
            raise _unavailable("this host does not say which user you are (getent)") from None
        if request.transport is not None:
            self.clients.belongs(request.transport, viewer.uid)
        return viewer

    def admits(self, transport: asyncio.Transport) -> bool:
        """May a new connection stay?"""
        try:
            whose = self.identities.whose(connection_of(transport))
        except (UnknownViewer, web.HTTPForbidden):
            return False
        return self.clients.admit(transport, whose)

    # -- the page and its files ----------------------------------------------

    async def index(self, request: web.Request) -> web.Response:
        """The one page; what it shows stands behind the # of its address."""
        viewer = await self.viewer(request)
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

    async def state(self, request: web.Request) -> web.StreamResponse:
        """Everything that the viewer may see, once."""
        viewer = await self.viewer(request)
        try:
            text = await self.feed.whole(viewer.kind)
        except Busy as error:
            raise _unavailable(str(error)) from None
        response = web.StreamResponse(headers=HEADERS)
        response.content_type, response.charset = "application/json", "utf-8"
        response.content_length = len(text)
        # The answer is the connection's last, which its head must say.
        response.force_close()
        await response.prepare(request)
        if request.method != "HEAD":
            try:
                await self._send(request, response, viewer, text)
            except (TimeoutError, ConnectionError):
                _cut_off(request)
        return response

    async def _send(
        self,
        request: web.Request,
        response: web.StreamResponse,
        viewer: Viewer,
        text: bytes,
        head: bytes = b"",
        end: bytes = b"",
    ) -> None:
        """The text between head and end. Raises TimeoutError, ConnectionError."""
        with self.waiting.sent(viewer.kind, text, request.transport):
            async with asyncio.timeout(TAKE_S):
                if len(text) < PIECE:
                    await response.write(head + text + end)
                    return
                # The text is everybody's, and never copied as a whole.
                await response.write(head)
                for piece in in_pieces(text):
                    await response.write(piece)
                await response.write(end)

    async def events(self, request: web.Request) -> web.StreamResponse:
        """The same as a stream of server-sent events, for as long as the client takes them."""
        viewer = await self.viewer(request)
        with self.clients.stream_of(viewer):
            try:
                await self.feed.whole(viewer.kind)
            except Busy as error:
                raise _unavailable(str(error)) from None
            response = web.StreamResponse(headers={"X-Accel-Buffering": "no"})
            response.content_type, response.charset = "text/event-stream", "utf-8"
            response.headers.update(HEADERS)
            await response.prepare(request)
            stream = self.feed.events(viewer.kind)
            try:
                async for kind, text in stream:
                    # Beside the text, which is the same for all who see the same, and kept.
                    head = f"event: {kind}\nid: {self.feed.as_of}\ndata: ".encode()
                    await self._send(request, response, viewer, text, head, b"\n\n")
            except (TimeoutError, ConnectionError, Busy):
                _cut_off(request)
            finally:
                await stream.aclose()  # type: ignore[attr-defined]  # an async generator
        return response

    async def job(self, request: web.Request) -> web.Response:
        """GET /api/job/ID: what the page of one job shows."""
        text = request.match_info["number"]
        return await self._details(request, lambda look, uid: look.job(int(text), uid))

    async def node(self, request: web.Request) -> web.Response:
        """GET /api/node/NAME: what the page of one node shows."""
        name = _node_in(request)
        return await self._details(request, lambda look, uid: look.node(name, uid))

    async def _details(
        self, request: web.Request, look: Callable[[Details, int | None], dict[str, Any]]
    ) -> web.Response:
        viewer = await self.viewer(request)
        try:
            reading = await self.feed.now(viewer.kind)
        except Busy as error:
            raise _unavailable(str(error)) from None
        colours = self.feed.colours.of_job
        details = Details(self.feed.sources, reading, partial(_is_gone, request), colours)
        return await self._looked_up(request, viewer, lambda: look(details, viewer.kind))

    async def _looked_up(
        self, request: web.Request, viewer: Viewer, look: Callable[[], dict[str, Any]]
    ) -> web.Response:
        try:
            answer = await self.turns.look(viewer.uid, look, partial(_is_gone, request))
        except NotFound as error:
            raise web.HTTPNotFound(text=f"{error}: none that you may see\n") from None
        except TooMany:
            raise web.HTTPTooManyRequests(
                text="you have asked much already; ask again later\n", headers={"Retry-After": "2"}
            ) from None
        except Stopped:
            raise _unavailable("the client is gone") from None
        return web.json_response(answer)

    async def gain(self, request: web.Request) -> web.Response:
        """What was gained against Slurm's own choice."""
        viewer = await self.viewer(request)
        if self.gains.is_outdated and (self.summing_up is None or self.summing_up.done()):
            # In nobody's turn: who asks next goes by the same sum.
            self.summing_up = asyncio.ensure_future(asyncio.to_thread(self.gains.read))
        try:
            if self.summing_up is not None:
                await asyncio.shield(self.summing_up)
        except OSError as error:
            raise _unavailable(f"the decision log cannot be read: {error.strerror}") from None
        return await self._looked_up(request, viewer, lambda: self.gains.summary(viewer.kind))

    async def week(self, request: web.Request) -> web.Response:
        """GET /api/week: GPUs free, stranded, and the largest job that fits, of seven days."""
        viewer = await self.viewer(request)
        return await self._looked_up(
            request, viewer, lambda: self.week_of_free.summary(viewer.kind)
        )

    async def use_of_job(self, request: web.Request) -> web.Response:
        """GET /api/use/job/ID: how much of a job's GPUs is in use."""
        number = int(request.match_info["number"])
        return await self._use(request, lambda shown, uid: shown.job(number, uid))

    async def use_of_node(self, request: web.Request) -> web.Response:
        """GET /api/use/node/NAME: the same of a node's GPUs, as far as the viewer may see it."""
        name = _node_in(request)
        return await self._use(request, lambda shown, uid: shown.node(name, uid))

    async def _use(
        self, request: web.Request, look: Callable[[ShownUse, int | None], dict[str, Any]]
    ) -> web.Response:
        viewer = await self.viewer(request)
        if self.prometheus is None:
            return web.json_response({"is_asked": False})
        try:
            reading = await self.feed.now(viewer.kind)
        except Busy as error:
            raise _unavailable(str(error)) from None
        nodes = {node.name for node in reading.snapshot.nodes}
        exported = await self.prometheus.exported(nodes)
        reading = await self.feed.after(exported.answered, reading)
        shown = ShownUse(exported, reading, self.feed.sources.machines)
        return await self._looked_up(
            request, viewer, lambda: {"is_asked": True} | look(shown, viewer.kind)
        )


def _node_in(request: web.Request) -> str:
    """The node that the path names. Raises HTTPNotFound where no node is called so."""
    name = request.match_info["name"]
    if not _NODE.match(name):
        raise web.HTTPNotFound(text="no such node\n")
    return name


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
            web.get(r"/api/use/job/{number:[1-9]\d{0,9}}", page.use_of_job),
            web.get("/api/use/node/{name}", page.use_of_node),
            web.get("/api/gain", page.gain),
            web.get("/api/week", page.week),
        ]
    )
    return app


def connection_of(transport: asyncio.Transport | None) -> PageConnection:
    """Where a request came from, by its socket and never by what it says."""
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None:
        raise web.HTTPForbidden(text="the connection is gone\n")
    if sock.family == socket.AF_UNIX:
        return PageConnection(socket.AF_UNIX)
    assert transport is not None
    peer, own = (transport.get_extra_info(key) for key in ("peername", "sockname"))
    if not peer or not own:
        raise web.HTTPForbidden(text="the connection is gone\n")
    return PageConnection(sock.family, tuple(peer[:2]), tuple(own[:2]))


def _is_gone(request: web.Request) -> bool:
    """Has the client hung up?"""
    return request.transport is None or request.transport.is_closing()


def _cut_off(request: web.Request) -> None:
    """What the client has not taken is dropped."""
    if request.transport is not None:
        request.transport.abort()


def _unavailable(problem: str) -> web.HTTPServiceUnavailable:
    return web.HTTPServiceUnavailable(text=f"{problem}\n", headers={"Retry-After": "2"})


def _files() -> dict[str, bytes]:
    """Every file of the page by name, and the style of pictures."""
    folder = resources.files("slurm_plugin.tell.web") / "static"
    files = {
        entry.name: entry.read_bytes()
        for entry in folder.iterdir()
        if entry.name.endswith(tuple(TYPES))
    }
    return files | {"pictures.css": theme.css().encode()}


@cache
def _template() -> jinja2.Template:
    folder = resources.files("slurm_plugin.tell.web") / "templates"
    text = (folder / "page.html").read_text(encoding="utf-8")
    return jinja2.Environment(autoescape=True).from_string(text)
