"""The socket side against clients that misbehave; a real server on a temporary socket."""

import asyncio
import contextlib
import os
import socket
import stat
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from slurm_plugin.base.protocol import MAX_REQUEST_BYTES
from slurm_plugin.errors import PluginError
from slurm_plugin.serve import server as module
from slurm_plugin.serve.server import Answerer, LineAnswer, LineServer


def echo(line: bytes) -> LineAnswer:
    if line == b"quiet":
        return LineAnswer(None)
    if line == b"bye":
        return LineAnswer(b"bye\n", close=True)
    if line.startswith(b"big "):
        return LineAnswer(b"x" * int(line[4:]) + b"\n")
    if line == b"hears":
        return LineAnswer(b"ok\n", hears=True)
    if line == b"later":
        return LineAnswer(None, later=_later([]))
    return LineAnswer(line + b"\n")


async def _later(tasks: list[weakref.ref[object]]) -> bytes:
    tasks.append(weakref.ref(asyncio.current_task()))
    await asyncio.sleep(0)
    return b"at last\n"


@asynccontextmanager
async def running(path: Path, answer: Answerer = echo) -> AsyncIterator[LineServer]:
    server = LineServer(path, answer)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def taken(path: Path) -> None:
    """What was sent before has reached the server: a later client has its answer."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(b"taken\n")
    assert await reader.readline() == b"taken\n"
    writer.close()


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int]]:
    """Of each connection dropped for unread replies: was it closing, and the bytes unread."""
    found: list[tuple[bool, int]] = []
    drop = module.Connection._never_read

    def recorded(one: module.Connection) -> None:
        found.append((one.transport.is_closing(), one.transport.get_write_buffer_size()))
        drop(one)

    monkeypatch.setattr(module, "UNREAD_REPLY_S", 0.1)
    monkeypatch.setattr(module.Connection, "_never_read", recorded)
    return found


@asynccontextmanager
async def talk(
    path: Path, answer: Answerer = echo
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server that runs."""
    async with running(path, answer):
        reader, writer = await asyncio.open_unix_connection(str(path), limit=1 << 24)
        try:
            yield reader, writer
        finally:
            writer.close()


async def test_lines_are_answered_in_order_however_they_are_cut(tmp_path):
    async with talk(tmp_path / "s") as (reader, writer):
        for piece in (b"on", b"e\ntw", b"o\nquiet\nthree\n"):
            writer.write(piece)
            await writer.drain()
            await taken(tmp_path / "s")
        assert [await reader.readline() for _ in range(3)] == [b"one\n", b"two\n", b"three\n"]


async def test_who_hears_is_asked_for_a_pass_and_nobody_else(tmp_path):
    path = tmp_path / "s"
    async with running(path) as server:
        pairs = [await asyncio.open_unix_connection(str(path)) for _ in range(3)]
        for (reader, writer), line in zip(pairs, (b"hears", b"other", b"hears"), strict=True):
            writer.write(line + b"\n")
            await reader.readline()
        pairs[2][1].close()
        await until(lambda: len(server.connections) == 2)
        server.ask_for_pass()
        for _, writer in pairs[:2]:
            writer.write(b"more\n")
            writer.write_eof()
        heard = [await reader.read() for reader, _ in pairs[:2]]
        assert heard == [b"schedule\nmore\n", b"more\n"]


async def test_many_lines_in_one_write_are_all_answered(tmp_path):
    async with talk(tmp_path / "s") as (reader, writer):
        lines = [b"%d\n" % i for i in range(5000)]
        writer.write(b"".join(lines))
        assert [await reader.readline() for _ in lines] == lines


@pytest.mark.parametrize("ends", [b"", b"\n"], ids=["without end", "with end"])
async def test_ten_megabytes_in_a_line_cost_only_that_connection(tmp_path, ends):
    path = tmp_path / "s"

    async with talk(path) as (reader, writer):
        other_reader, other = await asyncio.open_unix_connection(str(path))
        writer.write(b"x" * (10 << 20) + ends)
        # It may be hung up on before it has said all.
        with contextlib.suppress(ConnectionError):
            await reader.read()
        other.write(b"unharmed\n")
        assert await other_reader.readline() == b"unharmed\n"
        other.close()


async def test_a_line_just_over_the_limit_is_told_so(tmp_path):
    async with talk(tmp_path / "s") as (reader, writer):
        writer.write(b"x" * MAX_REQUEST_BYTES)
        assert b"longer%20than%201048576" in await reader.readline()
        assert await reader.read() == b""


async def test_one_bad_client_does_not_disturb_another(tmp_path):
    path = tmp_path / "s"
    async with running(path) as server:
        good_reader, good = await asyncio.open_unix_connection(str(path))
        _, bad = await asyncio.open_unix_connection(str(path))
        bad.write(b"x" * (3 << 20))
        _, half = await asyncio.open_unix_connection(str(path))
        half.write(b"half a li")
        good.write(b"hello\n")
        assert await asyncio.wait_for(good_reader.readline(), 5) == b"hello\n"
        half.close()
        bad.close()
        await until(lambda: len(server.connections) == 1)
        good.close()


async def test_a_half_line_that_never_ends_costs_the_connection(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "HALF_LINE_S", 0.05)

    async with talk(tmp_path / "s") as (reader, writer):
        writer.write(b"whole\nhalf")
        assert await reader.readline() == b"whole\n"
        assert (await reader.readline()).startswith(b"error id=0 message=a%20line%20did%20not")
        assert await reader.read() == b""


async def test_a_line_that_comes_byte_by_byte_has_no_more_time_than_any_other(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "HALF_LINE_S", 0.3)

    async with talk(tmp_path / "s") as (reader, writer):

        async def drip() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        # The words to it are lost where the kernel finds a byte that nobody read.
        with contextlib.suppress(ConnectionError):
            told = await asyncio.wait_for(reader.read(), 10)
            assert told.startswith(b"error id=0 message=a%20line%20did%20not")
        dripping.cancel()


def works(told: list[str]) -> Answerer:
    """`one` leaves work that says when it is done, `again` some that is done three times."""

    def answer(line: bytes) -> LineAnswer:
        word = line.decode()
        told.append(word)

        def done() -> bool:
            told.append(f"{word} done")
            return word == "again" and told.count("again done") < 3

        return LineAnswer(line + b"\n", after=done if word in ("one", "two", "again") else None)

    return answer


async def say(talking: tuple[asyncio.StreamReader, asyncio.StreamWriter], *words: str) -> None:
    reader, writer = talking
    for word in words:
        writer.write(word.encode() + b"\n")
        assert await reader.readline() == word.encode() + b"\n"


async def test_what_replies_leave_is_done_in_order_once_no_line_comes(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "QUIET_S", 0.3)
    told: list[str] = []
    async with talk(tmp_path / "s", works(told)) as talking:
        await say(talking, "one", "again", "two", "last")
        assert told == ["one", "again", "two", "last"]
        await until(lambda: told.count("again done") == 3)
    assert told[4:] == ["one done", "again done", "two done", "again done", "again done"]


async def test_of_much_that_is_left_one_is_done_after_each_line(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "QUIET_S", 1000)
    monkeypatch.setattr(module, "MOST_LEFT", 2)
    told: list[str] = []
    async with talk(tmp_path / "s", works(told)) as talking:
        await say(talking, "one", "again", "two", "last")
        assert told == ["one", "again", "two", "one done", "last"]
    # The rest before it stops, once each.
    assert told[5:] == ["again done", "two done"]


async def test_nobody_is_taken_in_once_it_has_stopped(tmp_path):
    """Not even who knows the socket by another name."""
    async with running(tmp_path / "s"):
        os.link(tmp_path / "s", tmp_path / "other")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_unix_connection(str(tmp_path / "other"))


async def test_a_client_that_never_reads_is_dropped_and_costs_little_memory(tmp_path, dropped):
    path = tmp_path / "s"
    async with running(path) as server:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(path))
        sock.sendall(b"big 300000\n" * 100)
        await until(lambda: dropped and not server.connections)
        # One reply over the mark at most: the other 98 questions wait unanswered.
        [(was_closing, unread_bytes)] = dropped
        assert not was_closing
        assert unread_bytes < 700_000
        sock.close()


async def test_a_client_that_is_hung_up_on_and_never_reads_is_dropped_too(tmp_path, dropped):
    path = tmp_path / "s"
    async with running(path) as server:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(path))
        # More than the kernel takes, less than what stops the reading.
        sock.sendall(b"big 200000\nbig 200000\nbye\n")
        await until(lambda: dropped and not server.connections)
        [(was_closing, unread_bytes)] = dropped
        assert was_closing
        assert unread_bytes > 0
        sock.close()


async def test_a_slow_reader_gets_every_reply(tmp_path):
    async with talk(tmp_path / "s") as (reader, writer):
        writer.write(b"big 200000\n" * 20 + b"end\n")
        for _ in range(20):
            assert len(await reader.readline()) == 200_001
            await asyncio.sleep(0.005)
        assert await reader.readline() == b"end\n"


async def test_a_later_reply_does_not_hold_up_the_next_line(tmp_path):
    async with talk(tmp_path / "s") as (reader, writer):
        writer.write(b"later\nnow\n")
        assert await reader.readline() == b"now\n"
        assert await reader.readline() == b"at last\n"


async def test_a_later_reply_leaves_nothing_behind(tmp_path):
    tasks: list[weakref.ref[object]] = []
    later = LineAnswer(None, later=_later(tasks))
    async with talk(tmp_path / "s", lambda _: later) as (reader, writer):
        writer.write(b"\n")
        assert await reader.readline() == b"at last\n"
        await until(lambda: tasks[0]() is None)


async def test_the_answer_may_end_the_connection(tmp_path):
    async with talk(tmp_path / "s") as (reader, writer):
        writer.write(b"bye\nmore\n")
        assert await reader.read() == b"bye\n"


async def test_a_hundred_clients_at_once_each_get_their_own_answers(tmp_path):
    path = tmp_path / "s"

    async def client(number: int) -> bool:
        reader, writer = await asyncio.open_unix_connection(str(path))
        for i in range(20):
            line = b"%d %d\n" % (number, i)
            writer.write(line)
            if await reader.readline() != line:
                return False
        writer.close()
        return True

    async with running(path):
        assert all(await asyncio.gather(*(client(n) for n in range(100))))


async def test_one_connection_too_many_is_sent_away(tmp_path):
    """SECURITY.md says 256."""
    path = tmp_path / "s"
    async with running(path):
        kept = [await asyncio.open_unix_connection(str(path)) for _ in range(256)]
        reader, writer = await asyncio.open_unix_connection(str(path))
        assert b"more%20than%20256%20connections" in await asyncio.wait_for(reader.read(), 5)
        kept[0][1].write(b"still here\n")
        assert await kept[0][0].readline() == b"still here\n"
        for end in (writer, *(w for _, w in kept)):
            end.close()


async def test_the_socket_is_0600_and_removed_at_the_end(tmp_path):
    path = tmp_path / "s"
    async with running(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


async def test_a_stale_socket_file_is_replaced(tmp_path):
    path = tmp_path / "s"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()

    async with talk(path) as (reader, writer):
        writer.write(b"alive\n")
        assert await reader.readline() == b"alive\n"


async def test_a_live_engine_is_not_pushed_off_its_socket(tmp_path):
    path = tmp_path / "s"
    async with running(path):
        with pytest.raises(PluginError, match="another engine answers"):
            await LineServer(path, echo).start()
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"mine\n")
        assert await reader.readline() == b"mine\n"
        writer.close()


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path):
    path = tmp_path / "s"
    path.write_text("precious")
    with pytest.raises(PluginError, match="not a socket"):
        await LineServer(path, echo).start()
    assert path.read_text() == "precious"


async def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(PluginError, match="directory must exist"):
        await LineServer(tmp_path / "none" / "s", echo).start()


async def test_a_successors_socket_is_not_removed_at_the_end(tmp_path):
    path = tmp_path / "s"
    async with running(path):
        os.unlink(path)
        path.write_text("successor")
    assert path.exists()
