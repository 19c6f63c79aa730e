"""Bytes from one connection to another, both ways, until one of them ends."""

from __future__ import annotations

import asyncio
import contextlib

CHUNK_BYTES = 1 << 18


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def join(near: Streams, far: Streams) -> None:
    """Carry bytes between the two.

    One side that says no more (a half-closed connection) may still listen; once both are done,
    or one broke, both are closed.
    """
    both = [
        asyncio.ensure_future(_carry(near[0], far[1])),
        asyncio.ensure_future(_carry(far[0], near[1])),
    ]
    try:
        done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.exception()
    finally:
        for task in both:
            task.cancel()
        close(near[1])
        close(far[1])


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(CHUNK_BYTES):
        sink.write(data)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()


def close(writer: asyncio.StreamWriter) -> None:
    """Close, whether or not the peer is still there."""
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()
