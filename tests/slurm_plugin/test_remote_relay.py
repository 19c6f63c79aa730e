"""The relay over loopback: who gets through, who does not, and how connections end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from paper_munge import PaperMunge

from slurm_plugin.remote.errors import Refused, RemoteError
from slurm_plugin.remote.node import echo, handshake, relay, sockets
from slurm_plugin.remote.node.relay import DonorEnd, Door, JobEnd

SUBJECT = "4711/4712"
STRANGER = os.getuid() + 1


def bound() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


async def shouting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A middleware's server: says everything it hears once more, in capitals."""
    with contextlib.suppress(OSError):
        while data := await reader.read(1000):
            writer.write(data.upper())
            await writer.drain()
        writer.close()


class Donor:
    """A donor's end before a server, and who was refused."""

    def __init__(self, door: Door, end: DonorEnd, server: asyncio.Server) -> None:
        self.door, self.end, self.server = door, end, server


@contextlib.asynccontextmanager
async def donor(munge: PaperMunge) -> AsyncIterator[Donor]:
    server = await asyncio.start_server(shouting, sock=bound())
    port = server.sockets[0].getsockname()[1]
    end = DonorEnd(SUBJECT, {"gpus": 2}, lambda: asyncio.open_connection("127.0.0.1", port), munge)
    sock = bound()
    await end.start(sock)
    yield Donor(Door("127.0.0.1", sock.getsockname()[1], SUBJECT), end, server)
    await end.stop()
    server.close()


@contextlib.asynccontextmanager
async def job(door: Door, munge: PaperMunge) -> AsyncIterator[tuple[JobEnd, int]]:
    end, sock = JobEnd(door, munge), bound()
    await end.start(sock)
    yield end, sock.getsockname()[1]
    await end.stop()


async def says(port: int, words: bytes) -> bytes:
    """What a task at loopback hears for its words; nothing where it is hung up on."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    heard = b""
    with contextlib.suppress(ConnectionError):
        writer.write(words)
        writer.write_eof()
        heard = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    return heard


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 20))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@in_loop
async def test_a_task_reaches_the_server_through_both_ends() -> None:
    munge = PaperMunge()
    async with donor(munge) as lender, job(lender.door, munge) as (_, port):
        assert await says(port, b"hello") == b"HELLO"
        both = await asyncio.gather(*(says(port, b"x" * 300_000) for _ in range(3)))
        assert both == [b"X" * 300_000] * 3


@in_loop
async def test_both_are_told_about_the_donor_once_they_proved_who_they_are() -> None:
    munge = PaperMunge()
    async with donor(munge) as lender:
        assert await relay.ask(lender.door, munge) == {"gpus": 2}


@in_loop
async def test_another_user_is_refused_and_told_nothing() -> None:
    seen: set[str] = set()
    async with donor(PaperMunge(seen=seen)) as lender:
        with pytest.raises(Refused, match="the donor refused us"):
            await relay.ask(lender.door, PaperMunge(STRANGER, seen))
        assert lender.end.refused == 1


@in_loop
async def test_the_same_users_other_job_is_refused() -> None:
    munge = PaperMunge()
    async with donor(munge) as lender:
        other = Door(lender.door.host, lender.door.port, "4711/9999")
        with pytest.raises(Refused, match="refused us"):
            await relay.ask(other, munge)


@in_loop
async def test_a_donor_of_another_user_is_not_believed() -> None:
    """Somebody took the port and answers as a donor would."""
    seen: set[str] = set()

    class Liar(PaperMunge):
        def opened(self, sealed: str) -> tuple[int, str]:
            return os.getuid(), super().opened(sealed)[1]

    async with donor(Liar(STRANGER, seen)) as lender:
        with pytest.raises(Refused, match=f"made by uid {STRANGER}"):
            await relay.ask(lender.door, PaperMunge(seen=seen))


@in_loop
async def test_words_of_an_earlier_connection_open_nothing() -> None:
    """A stranger who listened in repeats them, to this donor or to another."""
    munge, heard = PaperMunge(), []

    class Listening(PaperMunge):
        def seal(self, text: str) -> str:
            heard.append(super().seal(text))
            return heard[-1]

    async with donor(munge) as lender:
        await relay.ask(lender.door, Listening())
        reader, writer = await asyncio.open_connection(lender.door.host, lender.door.port)
        await reader.readline()
        writer.write(f"{'0' * 32} {heard[0]}\n".encode())
        assert await reader.readline() == b"refused\n"
        munge.seen.clear()  # Even were munged to open it twice.
        reader, writer = await asyncio.open_connection(lender.door.host, lender.door.port)
        await reader.readline()
        writer.write(f"{'0' * 32} {heard[0]}\n".encode())
        assert await reader.readline() == b"refused\n"
        assert lender.end.refused == 2


@pytest.mark.parametrize(
    "words",
    [b"\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 20_000, b"\x00\xff\n", b"0" * 32 + b" forged\n"],
    ids=["nothing", "http", "endless", "binary", "forged"],
)
def test_noise_is_refused(words: bytes) -> None:
    @in_loop
    async def run() -> None:
        munge = PaperMunge()
        async with donor(munge) as lender:
            reader, writer = await asyncio.open_connection(lender.door.host, lender.door.port)
            await reader.readline()
            writer.write(words)
            heard = b""
            with contextlib.suppress(OSError):
                heard = await reader.read()
            assert heard in (b"refused\n", b"")
            assert lender.end.refused == 1
            assert await relay.ask(lender.door, munge) == {"gpus": 2}

    run()


@in_loop
async def test_who_says_nothing_is_hung_up_on() -> None:
    before, handshake.HANDSHAKE_S = handshake.HANDSHAKE_S, 0.2
    try:
        async with donor(PaperMunge()) as lender:
            reader, _ = await asyncio.open_connection(lender.door.host, lender.door.port)
            await reader.readline()
            assert await reader.read() == b"refused\n"
    finally:
        handshake.HANDSHAKE_S = before


@in_loop
async def test_what_is_no_donor_is_not_talked_to() -> None:
    async def greets(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")

    server = await asyncio.start_server(greets, sock=bound())
    door = Door("127.0.0.1", server.sockets[0].getsockname()[1], SUBJECT)
    with pytest.raises(RemoteError, match="no donor of ours"):
        await relay.ask(door, PaperMunge())
    server.close()


@in_loop
async def test_a_donor_that_is_away_is_named() -> None:
    sock = bound()
    port = sock.getsockname()[1]
    sock.close()
    with pytest.raises(RemoteError, match=f"127.0.0.1:{port} cannot be reached: "):
        await relay.ask(Door("127.0.0.1", port, SUBJECT), PaperMunge())


@in_loop
async def test_a_server_that_died_ends_the_tasks_connection() -> None:
    munge = PaperMunge()
    async with donor(munge) as lender, job(lender.door, munge) as (_, port):
        lender.server.close()
        await asyncio.sleep(0)
        assert await says(port, b"hello") == b""


@in_loop
async def test_a_server_that_dies_while_it_is_used_ends_the_connection() -> None:
    munge = PaperMunge()
    async with donor(munge) as lender, job(lender.door, munge) as (_, port):
        dying = asyncio.Event()

        async def dies(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await dying.wait()
            writer.transport.abort()

        server = await asyncio.start_server(dies, sock=bound())
        at = server.sockets[0].getsockname()[1]
        lender.end._reach = lambda: asyncio.open_connection("127.0.0.1", at)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"work")
        dying.set()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        server.close()


@in_loop
async def test_another_user_of_the_jobs_own_node_does_not_get_through() -> None:
    """The kernel says whose connection it is; here it says that of somebody else."""
    munge = PaperMunge()
    before = relay.owner_of
    async with donor(munge) as lender, job(lender.door, munge) as (end, port):
        relay.owner_of = lambda near, far: STRANGER
        try:
            assert await says(port, b"hello") == b""
        finally:
            relay.owner_of = before
        assert end.refused == 1
        assert await says(port, b"hello") == b"HELLO"


@in_loop
async def test_the_kernel_tells_whose_a_connection_is() -> None:
    server = await asyncio.start_server(shouting, sock=bound())
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    near, far = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
    assert relay.owner_of(near, far) == os.getuid()
    assert relay.owner_of((near[0], 1), far) is None
    writer.close()
    server.close()


@pytest.mark.parametrize("words", [b"", b"x"], ids=["closed", "reset"])
def test_a_connection_that_is_over_is_nobodys(words: bytes) -> None:
    with bound() as server, socket.create_connection(server.getsockname()) as client:
        near, far = client.getsockname(), client.getpeername()
        accepted, _ = server.accept()
        assert sockets.owner_of(near, far) == sockets.owner_of(far, near) == os.getuid()
        assert sockets.stands(accepted)
        accepted.send(words)  # Words that nobody reads make the end of it a reset.
        client.close()
        assert sockets.owner_of(near, far) is None
        assert not sockets.stands(accepted)
        accepted.close()


def test_the_same_ports_at_another_address_are_another_connection() -> None:
    with bound() as server, socket.create_connection(server.getsockname()) as client:
        (_, port), far = client.getsockname(), client.getpeername()
        assert sockets.owner_of(("127.0.0.2", port), far) is None
        assert sockets.owner_of(("127.0.0.1", port), ("127.0.0.2", far[1])) is None
        with socket.socket() as other:
            other.bind(("127.0.0.2", port))
            other.connect(far)
            assert sockets.owner_of(("127.0.0.2", port), far) == os.getuid()


def test_who_listens_at_an_address_is_not_taken_for_who_connects_from_there() -> None:
    """Where the kernel knows no such connection it names the one that listens."""
    with bound() as server, socket.create_server(("0.0.0.0", 0)) as listens:
        port = listens.getsockname()[1]
        assert sockets.listener(port) == os.getuid()
        assert sockets.owner_of(("127.0.0.3", port), server.getsockname()) is None


def test_an_ipv4_address_in_ipv6s_clothes_is_itself() -> None:
    with bound() as server, socket.socket(socket.AF_INET6) as client:
        far = server.getsockname()
        client.connect(("::ffff:127.0.0.1", far[1]))
        near = client.getsockname()[:2]
        assert near[0] == "::ffff:127.0.0.1"
        assert sockets.owner_of(near, far) == os.getuid()
        assert sockets.owner_of(("127.0.0.1", near[1]), far) == os.getuid()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host has no IPv6")
def test_ipv6_connections_have_owners_too() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        far = server.getsockname()[:2]
        with socket.create_connection(far) as client:
            near = client.getsockname()[:2]
            assert sockets.owner_of(near, far) == os.getuid()
            assert sockets.owner_of(("::2", near[1]), far) is None
            assert sockets.owner_of(("127.0.0.1", near[1]), far) is None


def test_a_port_that_nobody_listens_at_is_nobodys() -> None:
    with bound() as server:
        port = server.getsockname()[1]
        sockets.check(server)
        assert sockets.listener(port) == os.getuid()
    assert sockets.listener(port) is None


def test_a_kernel_that_does_not_tell_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_ask", lambda near, far: None)
    with bound() as server, pytest.raises(RemoteError, match="load its module tcp_diag"):
        sockets.check(server)


@in_loop
async def test_echo_lists_the_devices_it_may_use_to_its_own_user_alone() -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = "1,5"
    try:
        seen: set[str] = set()
        server = await echo.serve("127.0.0.1", 0, SUBJECT, PaperMunge(seen=seen))
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        found = await echo.ask(address, SUBJECT, PaperMunge(seen=seen))
        assert found == (socket.gethostname(), ["1", "5"])
        with pytest.raises(RemoteError, match="refused"):
            await echo.ask(address, SUBJECT, PaperMunge(STRANGER, seen))
        with pytest.raises(RemoteError, match="no answer"):
            await echo.ask(address, "", PaperMunge(seen=seen))
        server.close()
    finally:
        del os.environ["CUDA_VISIBLE_DEVICES"]
