"""Clients that have not proved yet who they are: there may be only a few, and not for long.

Nobody must keep the job out, not even another user of the job's own node. So each source (an
address) has a few places of its own. Where all of them are taken, a new client gets the place of
one that has said nothing for long: clients of ours speak within milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address

from slurm_plugin.errors import Refused

#: Places for one source, and for all: each costs a descriptor and at most some 20 kB.
PER_SOURCE, IN_ALL = 64, 256
#: How many credentials of one source are checked by munged at a time.
CHECKS_PER_SOURCE = 4


@dataclass
class _Source:
    """The strangers of one address: silent ones, the oldest first, and those that have spoken."""

    silent: dict[asyncio.StreamWriter, None] = field(default_factory=dict)
    speaking: int = 0
    checks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CHECKS_PER_SOURCE))

    @property
    def places(self) -> int:
        """How many places are taken."""
        return len(self.silent) + self.speaking


class Strangers:
    """The places at one donor."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}

    @contextlib.contextmanager
    def place(self, writer: asyncio.StreamWriter) -> Iterator[_Source]:
        """A place for a connection. Raises Refused where all places are kept."""
        name = source_of(writer)
        source = self._sources.get(name) or _Source()
        self._make_room(source)
        self._sources[name] = source
        source.silent[writer] = None
        try:
            yield source
        finally:
            source.silent.pop(writer, None)
            if not source.places and self._sources.get(name) is source:
                del self._sources[name]

    def _make_room(self, source: _Source) -> None:
        crowded = source
        if source.places < PER_SOURCE:
            if sum(other.places for other in self._sources.values()) < IN_ALL:
                return
            crowded = max(self._sources.values(), key=lambda other: len(other.silent))
        if not crowded.silent:
            raise Refused("too many strangers are being looked at")
        # Any of the older half: if always the oldest went, a steady crowd kept all others out.
        older = list(crowded.silent)[: len(crowded.silent) // 2 + 1]
        goes = random.choice(older)
        del crowded.silent[goes]
        goes.transport.abort()


@contextlib.asynccontextmanager
async def being_checked(source: _Source, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """A stranger that has spoken keeps its place while munged is asked who it is."""
    if writer not in source.silent:
        raise Refused("hung up on before its words were read")
    del source.silent[writer]
    source.speaking += 1
    try:
        async with source.checks:
            yield
    finally:
        source.speaking -= 1


def source_of(writer: asyncio.StreamWriter) -> str:
    """Where a connection comes from; a host has all of 127.0.0.0/8, which is one source."""
    host = ip_address(writer.get_extra_info("peername")[0])
    return "loopback" if host.is_loopback else str(host)
