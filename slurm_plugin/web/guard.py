"""What a client may do to the page's process: headers of every answer, and bounds on clients."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from slurm_plugin.web.identity import Viewer, is_loopback, plain_address

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Nothing comes from another host, no script or style stands in the page itself, and no other
#: page may show this one inside itself.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
    "Server": "gputopo",
}
#: Seconds that a connection may be open without a request that is being answered.
IDLE_S = 15.0
#: Connections in all; more are closed at once, those that have been idle longest first.
MAX_CONNECTIONS = 1024
#: Live connections of one user: each tab of a browser has one.
MAX_STREAMS_OF_ONE = 32


@web.middleware
async def with_headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every answer has the headers, refusals and errors included; none shows a traceback."""
    try:
        response = await handler(request)
    except web.HTTPException as error:
        error.headers.update(HEADERS)
        raise
    except Exception:
        logger.exception("%s could not be answered", request.path)
        response = web.Response(status=500, text="this could not be answered; the log says why\n")
    if not response.prepared:
        response.headers.update(HEADERS)
    return response


def is_own_host(request: web.Request) -> bool:
    """Was the page asked for by this host's own name?

    A foreign page can make a browser ask 127.0.0.1 by a name that points there (DNS rebinding), and
    would then read the answer as its own.
    """
    name = request.host.rpartition(":")[0] or request.host
    if request.host.count(":") > 1:
        name = request.host.partition("]")[0].lstrip("[")
    return name.lower() == "localhost" or is_loopback(plain_address(name))


class Clients:
    """Connections that ask nothing, or too slowly, are closed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Both by connection; those that are gone are forgotten when idle ones are looked for.
        self._idle_since: dict[object, float] = {}
        self._busy: Counter[object] = Counter()
        self._streams: Counter[int] = Counter()

    @web.middleware
    async def watched(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """A connection is not idle while a request of it is being answered."""
        key = request.protocol
        self._busy[key] += 1
        try:
            return await handler(request)
        finally:
            self._busy[key] -= 1
            if not self._busy[key]:
                del self._busy[key]
            self._idle_since[key] = self._clock()

    @contextmanager
    def stream_of(self, viewer: Viewer) -> Iterator[None]:
        """A live connection of this user; HTTPTooManyRequests beyond their share."""
        if self._streams[viewer.uid] >= MAX_STREAMS_OF_ONE:
            raise web.HTTPTooManyRequests(text="too many pages are open already\n")
        self._streams[viewer.uid] += 1
        try:
            yield
        finally:
            self._streams[viewer.uid] -= 1
            if not self._streams[viewer.uid]:
                del self._streams[viewer.uid]

    async def sweep(self, server: web.Server, every_s: float = 2.0) -> None:
        """Close idle connections, again and again, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            self.close_idle(server)

    def close_all(self, server: web.Server) -> None:
        """Close every connection, whatever is being answered."""
        for one in server.connections:
            if one.transport is not None:
                one.transport.abort()

    def close_idle(self, server: web.Server) -> None:
        """Close what has been idle for too long, and the oldest of too many."""
        now, there = self._clock(), server.connections
        self._idle_since = {one: self._idle_since.get(one, now) for one in there}
        idle = [one for one in there if not self._busy[one]]
        idle.sort(key=self._idle_since.__getitem__)
        too_many = len(there) - MAX_CONNECTIONS
        for place, one in enumerate(idle):
            is_old = now - self._idle_since[one] > IDLE_S
            if (is_old or place < too_many) and one.transport is not None:
                one.transport.abort()
