"""Who holds the places of a port keeps nobody out: real connections on loopback."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from slurm_plugin.base import port as module
from slurm_plugin.base.port import MAX_OF_ONE, MAX_OPEN, Port

VICTIM = "127.0.0.9"


async def echo(request: bytes) -> bytes:
    return b"ok " + request


@asynccontextmanager
async def listening(reply: module.Reply = echo) -> AsyncIterator[Port]:
    port = Port("explain_listen", ("127.0.0.1", 0), b"\n", reply, b"busy\n")
    await port.start()
    try:
        yield port
    finally:
        await port.stop()


async def asked(port: Port, source: str = VICTIM) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port.number, local_addr=(source, 0))
    try:
        writer.write(b"x\n")
        return await reader.read()
    finally:
        writer.transport.abort()


async def asked_within(port: Port, cpu_s: float) -> bytes:
    """The same, before this process has worked so long: what else the machine does is no matter."""
    asking, began_s = asyncio.create_task(asked(port)), time.process_time()
    while not asking.done():
        await asyncio.wait({asking}, timeout=0.05)
        assert time.process_time() - began_s < cpu_s
    return asking.result()


@asynccontextmanager
async def held(port: Port, sources: list[str], each: int, says: bytes) -> AsyncIterator[None]:
    """So many connections of each source, which come again whenever they are sent away."""

    async def hold(source: str) -> None:
        while True:
            try:
                where = (source, 0)
                pair = await asyncio.open_connection("127.0.0.1", port.number, local_addr=where)
                pair[1].write(says)
                try:
                    await pair[0].read()
                finally:
                    pair[1].transport.abort()
            except OSError:
                continue

    tasks = [asyncio.create_task(hold(source)) for source in sources for _ in range(each)]
    async with asyncio.timeout(20):
        while len(port._open) < MAX_OF_ONE:
            await asyncio.sleep(0.01)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("are_hosts", [True, False], ids=["hosts", "one-host"])
@pytest.mark.parametrize("says", [b"", b"half"])
@pytest.mark.parametrize(("each", "cpu_s"), [(64, 1.5), (300, 6.0)])
async def test_two_addresses_of_connections_that_ask_nothing(
    each, cpu_s, says, are_hosts, monkeypatch
):
    """Two other hosts, or two addresses that one user of the victim's own host has."""
    if are_hosts:
        monkeypatch.setattr(module, "source_of", lambda host: host)
    async with listening() as port, held(port, ["127.0.0.2", "127.0.0.3"], each, says):
        for _ in range(2):
            assert await asked_within(port, cpu_s) == b"ok x\n"
            assert len(port._open) <= MAX_OPEN


async def test_who_takes_no_reply_gives_way_too(monkeypatch):
    monkeypatch.setattr(module, "source_of", lambda host: host)

    async def large(request: bytes) -> bytes:
        return b"ok\n" if request == b"x\n" else b"y" * (16 << 20)

    async with listening(large) as port:
        tellers = []
        for n in range(MAX_OPEN):
            where = (f"127.0.0.{2 + n % 2}", 0)
            pair = await asyncio.open_connection(
                "127.0.0.1", port.number, local_addr=where, limit=1
            )
            pair[1].write(b"much\n")
            tellers.append(pair)
        assert await asyncio.wait_for(asked(port), module.TAKE_S / 2) == b"ok\n"
        for _, writer in tellers:
            writer.transport.abort()


async def test_what_is_being_answered_keeps_its_place(monkeypatch):
    """A source that has all of its places so is told; beyond the total others wait."""
    monkeypatch.setattr(module, "source_of", lambda host: host)
    go = asyncio.Event()

    async def slow(request: bytes) -> bytes:
        await go.wait()
        return await echo(request)

    async with listening(slow) as port:
        sources = [f"127.0.0.{2 + n % 2}" for n in range(MAX_OPEN)]
        tasks = [asyncio.create_task(asked(port, source)) for source in sources]
        async with asyncio.timeout(20):
            while sum(not one.waits for one in port._open) < MAX_OPEN:
                await asyncio.sleep(0.01)
        assert await asked(port, "127.0.0.2") == b"busy\n"
        port._changed.set()
        last = asyncio.create_task(asked(port))
        async with asyncio.timeout(20):
            while port._changed.is_set():
                await asyncio.sleep(0.01)
        go.set()
        assert await asyncio.gather(*tasks, last) == [b"ok x\n"] * (MAX_OPEN + 1)


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("127.0.0.1", "loopback"),
        ("127.9.8.7", "loopback"),
        ("::1", "loopback"),
        ("192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ],
)
def test_all_of_loopback_is_one_source(host, source):
    assert module.source_of(host) == source
