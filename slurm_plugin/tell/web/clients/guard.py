"""What a client may do to the page's process: headers of every answer, and bounds on clients."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager

from aiohttp import web

from slurm_plugin.tell.web.identity import Viewer, is_loopback, plain_address

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
#: Connections in all, and of one user or one other host.
MAX_CONNECTIONS, MAX_OF_ONE = 1024, 64
#: Live connections of one user: each tab of a browser has one.
MAX_STREAMS_OF_ONE = 32


@web.middleware
async def with_headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every answer has the headers, refusals and errors included; none shows a traceback.

    A connection ends with its first one, so that what a client sends at once is bounded.
    """
    try:
        response = await handler(request)
    except web.HTTPException as error:
        error.headers.update(HEADERS)
        error.force_close()
        raise
    except Exception as error:
        has_left = request.transport is None or request.transport.is_closing()
        if not (has_left and isinstance(error, ConnectionError)):
            logger.exception("%s could not be answered", request.path)
        response = web.Response(status=500, text="this could not be answered; the log says why\n")
    response.force_close()
    if not response.prepared:
        response.headers.update(HEADERS)
    return response


def is_own_host(request: web.Request) -> bool:
    """Was the page asked for by this host's own name?

    A foreign page can make a browser ask 127.0.0.1 by a name that points there (DNS rebinding), and
    would then read the answer as its own.
    """
    # By the header alone: without one aiohttp 3.8 asks the resolver for a name, and waits for it.
    host = request.headers.get("Host", "")
    name = host.rpartition(":")[0] or host
    if host.count(":") > 1:
        name = host.partition("]")[0].lstrip("[")
    return name.lower() == "localhost" or is_loopback(plain_address(name))


_TOO_MANY = "too many connections are open already\n"
#: What a connection that is not let in is told, whatever it says.
REFUSAL = "\r\n".join(
    [
        "HTTP/1.1 429 Too Many Requests",
        *(f"{name}: {value}" for name, value in HEADERS.items()),
        "Retry-After: 2",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(_TOO_MANY)}",
        "Connection: close",
        "",
        _TOO_MANY,
    ]
).encode("ascii")


def _answers(transport: asyncio.Transport) -> object:
    """What answers the requests of a connection: behind the door, where there is one."""
    protocol = transport.get_protocol()
    return getattr(protocol, "inner", protocol)


class Clients:
    """Connections beyond a user's share are not let in; those that ask nothing are closed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Both by connection; those that are gone are forgotten when idle ones are looked for.
        self._idle_since: dict[object, float] = {}
        self._busy: Counter[object] = Counter()
        self._streams: Counter[int] = Counter()
        #: By whom each open connection counts, oldest first; None where that is not known yet.
        self._whose: dict[asyncio.Transport, Hashable] = {}

    def admit(self, transport: asyncio.Transport, whose: Hashable) -> bool:
        """May this connection stay? Beyond the total who has most of them loses one."""
        self._forget_closed()
        counts = Counter(self._whose.values())
        if whose is not None and counts[whose] >= MAX_OF_ONE:
            return False
        if len(self._whose) >= MAX_CONNECTIONS:
            most = max(counts, key=counts.__getitem__)
            if whose is not None and counts[whose] >= counts[most]:
                return False
            self._least_needed(most).abort()
        self._whose[transport] = whose
        return True

    def belongs(self, transport: asyncio.Transport, uid: int) -> None:
        """A request says whose a connection is; HTTPTooManyRequests beyond their share."""
        if self._whose.get(transport) == uid:
            return
        self._forget_closed()
        if list(self._whose.values()).count(uid) >= MAX_OF_ONE:
            raise web.HTTPTooManyRequests(text=_TOO_MANY, headers={"Retry-After": "2"})
        self._whose[transport] = uid

    def _forget_closed(self) -> None:
        self._whose = {one: who for one, who in self._whose.items() if not one.is_closing()}

    def _least_needed(self, whose: Hashable) -> asyncio.Transport:
        """Their oldest connection that asks nothing now, or else their oldest."""
        theirs = [one for one, who in self._whose.items() if who == whose]
        return next((one for one in theirs if not self._busy[_answers(one)]), theirs[0])

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
        """Close what has been idle for too long."""
        now, there = self._clock(), server.connections
        self._forget_closed()
        self._idle_since = {one: self._idle_since.get(one, now) for one in there}
        for one in there:
            is_old = now - self._idle_since[one] > IDLE_S
            if is_old and not self._busy[one] and one.transport is not None:
                one.transport.abort()
