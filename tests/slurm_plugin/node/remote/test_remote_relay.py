"""The relay over loopback: who gets through, who does not, and how connections end."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from paper_donor import SUBJECT, bound, donor, tools
from paper_munge import PaperMunge

from slurm_plugin.errors import Refused, RemoteError
from slurm_plugin.node.remote import echo, handshake, relay
from slurm_plugin.node.remote.door import Door
from slurm_plugin.node.remote.relay import DonorAddress, DonorEnd, JobEnd
from slurm_plugin.node.remote.strangers import IN_ALL, PER_SOURCE, Strangers, being_checked
from slurm_plugin.node.remote.streams import Listener

STRANGER = os.getuid() + 1


@contextlib.asynccontextmanager
async def job(address: DonorAddress, munge: PaperMunge) -> AsyncIterator[tuple[Listener, int]]:
    sock = bound()
    listening = await JobEnd(address, munge, tools()).start(sock)
    yield listening, sock.getsockname()[1]
    listening.close()


async def says(port: int, words: bytes) -> bytes:
    """What a task at loopback hears for its words; nothing where it is hung up on."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    heard = b""
    with contextlib.suppress(OSError):
        writer.write(words)
        writer.write_eof()
        heard = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    return heard


async def stranger(address: DonorAddress, words: bytes = b"") -> bytes:
    """What a donor answers to these words in place of a proof."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    await reader.readline()
    writer.write(words)
    with contextlib.suppress(OSError):
        return await reader.read()
    return b""


async def test_a_donor_whose_queue_is_full_is_tried_again_at_once(monkeypatch):
    """A flood fills it. The kernel itself tries again after one, three and seven seconds."""
    munge, connect, tried = PaperMunge(), asyncio.open_connection, []

    async def dropped(*where: Any, **how: Any) -> Any:
        if where:  # else the donor's end makes streams of what it accepted
            tried.append(where)
            if len(tried) < 5:
                await asyncio.sleep(60)
        return await connect(*where, **how)

    monkeypatch.setattr(relay, "KNOCK_S", 0.2)
    async with donor(munge) as lender:
        monkeypatch.setattr(asyncio, "open_connection", dropped)
        assert await relay.ask(lender.address, munge)
        assert len(tried) >= 5
        monkeypatch.setattr(relay, "CONNECT_S", 0.02)
        tried.clear()
        with pytest.raises(Refused, match=r"cannot be reached: no answer within 0\.02 s"):
            await relay.ask(lender.address, munge)
        assert 1 <= len(tried) < 5


async def test_a_task_reaches_the_server_through_both_ends():
    munge = PaperMunge()
    async with donor(munge) as lender, job(lender.address, munge) as (_, port):
        assert await says(port, b"hello") == b"HELLO"
        both = await asyncio.gather(*(says(port, b"x" * 300_000) for _ in range(3)))
        assert both == [b"X" * 300_000] * 3


async def test_another_user_is_refused_and_told_nothing():
    seen: set[str] = set()
    async with donor(PaperMunge(seen=seen)) as lender:
        with pytest.raises(Refused, match="the donor refused us"):
            await relay.ask(lender.address, PaperMunge(STRANGER, seen))
        assert lender.end.refused == 1


async def test_the_same_users_other_job_is_refused():
    munge = PaperMunge()
    async with donor(munge) as lender:
        other = DonorAddress(lender.address.host, lender.address.port, "4711/9999")
        with pytest.raises(Refused, match="refused us"):
            await relay.ask(other, munge)


async def test_a_donor_of_another_user_is_not_believed():
    """Somebody took the port and answers as a donor would."""
    seen: set[str] = set()

    class Liar(PaperMunge):
        def opened(self, sealed: str) -> tuple[int, str]:
            return os.getuid(), super().opened(sealed)[1]

    async with donor(Liar(STRANGER, seen)) as lender:
        with pytest.raises(Refused, match=f"made by uid {STRANGER}"):
            await relay.ask(lender.address, PaperMunge(seen=seen))


async def test_words_of_an_earlier_connection_open_nothing():
    """A stranger who listened in repeats them, to this donor or to another."""
    munge, heard = PaperMunge(), []

    class Listening(PaperMunge):
        def seal(self, text: str) -> str:
            heard.append(super().seal(text))
            return heard[-1]

    async with donor(munge) as lender:
        await relay.ask(lender.address, Listening())
        words = f"{'0' * 32} {heard[0]}\n".encode()
        assert await stranger(lender.address, words) == b"refused\n"
        munge.seen.clear()  # Even were munged to open it twice.
        assert await stranger(lender.address, words) == b"refused\n"
        assert lender.end.refused == 2


@pytest.mark.parametrize(
    "words",
    [b"\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 20_000, b"\x00\xff\n", b"0" * 32 + b" forged\n"],
    ids=["nothing", "http", "endless", "binary", "forged"],
)
async def test_noise_is_refused(words):
    munge = PaperMunge()
    async with donor(munge) as lender:
        assert await stranger(lender.address, words) in (b"refused\n", b"")
        assert lender.end.refused == 1
        assert await relay.ask(lender.address, munge) == {"gpus": 2}


async def test_who_says_nothing_is_hung_up_on(monkeypatch):
    monkeypatch.setattr(handshake, "HANDSHAKE_S", 0.2)
    async with donor(PaperMunge()) as lender:
        assert await stranger(lender.address) == b"refused\n"


class Stranger:
    """A connection from an address, which can be hung up on."""

    def __init__(self, host: str) -> None:
        self.host, self.transport, self.is_gone = host, self, False

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return self.host, 1

    def abort(self) -> None:
        self.is_gone = True


@pytest.mark.parametrize(
    ("sources", "each"), [(1, 70), (1, 500), (10, 40), (1000, 1)], ids=lambda value: str(value)
)
async def test_a_crowd_of_silent_strangers_makes_room_and_no_other_does(sources, each):
    before, there = Strangers(), []
    async with contextlib.AsyncExitStack() as held:
        checked: Any = Stranger("10.0.0.1")
        source = held.enter_context(before.place(checked))
        await held.enter_async_context(being_checked(source, checked))
        for number in range(sources * each):
            there.append(Stranger(f"10.1.{number // each // 250}.{number // each % 250}"))
            held.enter_context(before.place(cast(Any, there[-1])))
            assert not there[-1].is_gone
        left = sum(not stranger.is_gone for stranger in there)
        assert left == min(sources * min(each, PER_SOURCE), IN_ALL - 1)
        new: Any = Stranger("10.0.0.1")
        held.enter_context(before.place(new))
        assert not new.is_gone
        assert not checked.is_gone


async def test_where_all_places_are_taken_by_who_has_spoken_the_next_comes_again():
    before = Strangers()

    async def speaks() -> None:
        one: Any = Stranger("10.0.0.1")
        with before.place(one) as source:
            async with being_checked(source, one):
                await asyncio.sleep(60)

    speaking = [asyncio.create_task(speaks()) for _ in range(PER_SOURCE)]
    await asyncio.sleep(0)
    new: Any = Stranger("10.0.0.1")
    with pytest.raises(Refused, match="too many"), before.place(new):
        pass
    other: Any = Stranger("10.0.0.2")
    with before.place(other):
        pass
    for task in speaking:
        task.cancel()
    await asyncio.gather(*speaking, return_exceptions=True)
    assert not before._sources


async def test_of_one_address_four_credentials_are_checked_at_a_time():
    """All of 127.0.0.0/8 is one address; another one need not wait for it."""
    before, checked = Strangers(), list[str]()

    async def speaks(host: str) -> None:
        one: Any = Stranger(host)
        with before.place(one) as source:
            async with being_checked(source, one):
                checked.append(host)
                await asyncio.sleep(60)

    hosts = [*(f"127.0.{nth}.1" for nth in range(9)), "10.0.0.2"]
    speaking = [asyncio.create_task(speaks(host)) for host in hosts]
    await asyncio.sleep(0.01)
    assert checked == [*hosts[:4], "10.0.0.2"]
    speaking[0].cancel()
    await asyncio.sleep(0.01)
    assert checked[5:] == hosts[4:5]
    for task in speaking:
        task.cancel()
    await asyncio.gather(*speaking, return_exceptions=True)


async def test_who_was_one_too_many_comes_again_and_gets_in():
    munge = PaperMunge()
    hung_up_on = 0

    async def crowded(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hung_up_on
        hung_up_on += 1
        writer.transport.abort()
        if hung_up_on == 3:
            full.close()
            await lender.start(sock)

    lender = DonorEnd(SUBJECT, {"gpus": 2}, None, munge)
    sock = bound()
    full = await asyncio.start_server(crowded, sock=sock.dup())
    assert await relay.ask(DonorAddress("127.0.0.1", sock.getsockname()[1], SUBJECT), munge) == {
        "gpus": 2
    }
    assert hung_up_on == 3


async def test_a_client_whose_munge_was_too_slow_for_the_donor_comes_again(monkeypatch):
    sealed = []

    class SlowAtFirst(PaperMunge):
        def seal(self, text: str) -> str:
            sealed.append(text)
            while not lender.end.refused:
                time.sleep(0.01)
            monkeypatch.undo()  # the second time is as long as it ever is
            return super().seal(text)

    monkeypatch.setattr(handshake, "HANDSHAKE_S", 0.5)
    async with donor(PaperMunge()) as lender:
        assert await relay.ask(lender.address, SlowAtFirst()) == {"gpus": 2}
        assert (len(sealed), lender.end.refused) == (2, 1)


async def test_what_is_no_donor_is_not_talked_to():
    async def greets(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")

    server = await asyncio.start_server(greets, sock=bound())
    address = DonorAddress("127.0.0.1", server.sockets[0].getsockname()[1], SUBJECT)
    with pytest.raises(RemoteError, match="no donor of ours"):
        await relay.ask(address, PaperMunge())
    server.close()


async def test_a_server_that_died_ends_the_tasks_connection():
    munge = PaperMunge()
    async with donor(munge) as lender, job(lender.address, munge) as (_, port):
        lender.server.close()
        await asyncio.sleep(0)
        assert await says(port, b"hello") == b""


async def test_a_server_that_dies_while_it_is_used_ends_the_connection():
    munge = PaperMunge()
    async with donor(munge) as lender, job(lender.address, munge) as (_, port):
        dying = asyncio.Event()

        async def dies(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await dying.wait()
            writer.transport.abort()

        server = await asyncio.start_server(dies, sock=bound())
        at = server.sockets[0].getsockname()[1]
        lender.end.admit = Door(tools(), at).admit
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"work")
        dying.set()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        server.close()


async def test_another_user_of_the_jobs_own_node_does_not_get_through(monkeypatch):
    """The kernel says whose connection it is; here it says that of somebody else."""
    munge = PaperMunge()
    async with donor(munge) as lender, job(lender.address, munge) as (end, port):
        with monkeypatch.context() as patch:
            patch.setattr(relay, "peer_of", lambda near: STRANGER)
            assert await says(port, b"hello") == b""
        assert end.refused == 1
        assert await says(port, b"hello") == b"HELLO"


async def test_echo_lists_the_devices_it_may_use_to_its_own_user_alone(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,5")
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
