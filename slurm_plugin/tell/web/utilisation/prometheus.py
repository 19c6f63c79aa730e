"""Asks the site's Prometheus for the GPUs of all nodes: one query, seldom, with bounds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

import aiohttp
import msgspec

from slurm_plugin.base.rows_file import NO_JSON
from slurm_plugin.errors import PluginError, in_one_line
from slurm_plugin.tell.web.utilisation.exporters import METRICS, ExportedGpu, Series, by_node

logger = logging.getLogger(__name__)

#: Seconds from one query to the next, however many look, and for which one is waited.
EVERY_S, DEADLINE_S = 15.0, 5.0
#: Bytes of a reply: some 17,000 GPUs with the labels that exporters give them.
MAX_REPLY = 24 << 20
QUERY = f'{{__name__=~"{"|".join(METRICS)}"}}'


class _Found(msgspec.Struct):
    kind: Literal["vector"] = msgspec.field(name="resultType")
    result: list[Series]


class _Reply(msgspec.Struct):
    status: Literal["success"]
    data: _Found


_DECODER = msgspec.json.Decoder(_Reply)


@dataclass(frozen=True, slots=True)
class Exported:
    """The answer to one query."""

    #: Node -> what is said of its GPUs.
    nodes: Mapping[str, Sequence[ExportedGpu]] = field(default_factory=dict)
    #: When it was asked (epoch): nothing in it is of a later time.
    asked_at: float = 0.0
    #: When it had come, by the clock of readings (`Snapshot.began`).
    answered: float = 0.0
    #: Why there is none, in one line; '' where there is one.
    problem: str = ""


def checked_url(text: str) -> str:
    """The address of a Prometheus without a / at its end. Raises PluginError."""
    try:
        url = urlsplit(text)
        is_url = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_url = False
    if "@" in text:
        # It would stand in the list of processes, which all users see.
        raise PluginError("--prometheus: expected an address without a name and a password")
    if not is_url or not text.isprintable() or set(text) & set(" ?#"):
        raise PluginError(f"--prometheus {text!r}: expected http://HOST:PORT, or https://HOST/PATH")
    return text.rstrip("/")


#: Series of one answer: some ten for each GPU of 8,000.
MOST_SERIES = 100_000


class Prometheus:
    """One for all viewers; only the event loop may call it."""

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`url` as of `checked_url`."""
        self._url, self._clock, self._wall_clock = url, clock, wall_clock
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[Exported] | None = None

    async def exported(self, nodes: Collection[str]) -> Exported:
        """What was said last of the GPUs of Slurm's `nodes`; asked anew where that is old."""
        now = self._clock()
        if self._asking is None or (self._asking.done() and now - self._asked_at >= EVERY_S):
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask(nodes))
        # Others wait for the same, whoever of them leaves.
        return await asyncio.shield(self._asking)

    async def _ask(self, nodes: Collection[str]) -> Exported:
        asked_at = self._wall_clock()
        try:
            text = await self._reply()
            found = await asyncio.to_thread(_decoded, text, nodes)
        except TimeoutError:
            problem = f"no whole answer within {DEADLINE_S:g} s"
        except (aiohttp.ClientError, OSError, ValueError, *NO_JSON) as error:
            problem = in_one_line(str(error))[:200] or type(error).__name__
        else:
            return Exported(found, asked_at, self._clock())
        logger.debug("Prometheus: %s", problem)
        return Exported({}, asked_at, problem=problem)

    async def _reply(self) -> bytes:
        """The bytes of its answer. Raises OSError, ValueError, ClientError."""
        # Nobody else is asked (no redirect, no proxy), and what is packed would have no bound.
        async with (
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=DEADLINE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            ) as session,
            session.get(
                f"{self._url}/api/v1/query",
                params={"query": QUERY, "timeout": f"{DEADLINE_S:g}s"},
                headers={"Accept": "application/json", "Accept-Encoding": "identity"},
                allow_redirects=False,
            ) as reply,
        ):
            if reply.status != 200:
                raise ValueError(f"it answers with status {reply.status}")
            text = bytearray()
            async for piece in reply.content.iter_chunked(1 << 16):
                text += piece
                if len(text) > MAX_REPLY:
                    raise ValueError(f"its answer is larger than {MAX_REPLY >> 20} MiB")
            return bytes(text)


def _decoded(text: bytes, nodes: Collection[str]) -> Mapping[str, Sequence[ExportedGpu]]:
    series = _DECODER.decode(text).data.result
    if len(series) > MOST_SERIES:
        # Tiny ones would keep all viewers waiting for seconds.
        raise ValueError(f"{len(series)} series; at most {MOST_SERIES} are looked at")
    return by_node(series, nodes)
