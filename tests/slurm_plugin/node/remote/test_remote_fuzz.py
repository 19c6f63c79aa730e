"""The wire of a loan under any bytes, in any pieces, with any end: nothing is kept or handed over.

Both sides of the handshake, requests to the relay, questions to the desk, the kernel's answers.
"""

import asyncio
import contextlib
import os
import selectors
import socket
import struct
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from paper_donor import SUBJECT, bound, tools
from paper_munge import PaperMunge

from slurm_plugin.errors import RemoteError
from slurm_plugin.node.remote import handshake, relay, sockets
from slurm_plugin.node.remote.door import Door
from slurm_plugin.node.remote.relay import DonorAddress, DonorEnd, JobEnd
from tests.processes import open_files

#: Seconds that a bounded thing may take here; a generous limit.
SECONDS = 20
WORDS = [
    *(b"\n", b" ", b"\0", b"\xff", b"x" * 9000, b"0" * 32, b"a" * 32 + b" ", b"ok ", b"refused\n"),
    *(b"info\n", b"open\n", b"open 1\n", b"open 9\n", b"open 0\n", b"go\n", b"go", b"ok\n"),
    *(b"gputopo-relay/2 ", b"gputopo-relay/2 " + b"b" * 32 + b"\n", b"[" * 3000, b"{}\n"),
]
piece = st.one_of(st.sampled_from(WORDS), st.binary(max_size=40))
said = st.lists(piece, max_size=6)
#: How a side ends: says no more, hangs up, resets, or waits for the other.
ending = st.sampled_from(["says no more", "hangs up", "resets", "waits"])
few = settings(max_examples=40)


@pytest.fixture(autouse=True, scope="module")
def short() -> Iterator[None]:
    """Nobody waits here as long as on a network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handshake, "HANDSHAKE_S", 0.3)
        patch.setattr(handshake, "ANSWER_S", 0.3)
        patch.setattr(relay, "CONNECT_S", 0.3)
        yield


class WhenIdle(selectors.DefaultSelector):
    """Waiting alone counts as time, so a loaded machine makes no deadline pass sooner."""

    waited_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0) or super().select(timeout)
        if not ready:
            self.waited_s += timeout or 0.0
        return ready


def run(what: Coroutine[None, None, None]) -> None:
    """As asyncio.run, with a clock that stands still while there is something to do."""
    selector = WhenIdle()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.waited_s
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(what)


@dataclass
class Lender:
    """A donor's end, whose server notes what it is given."""

    munge: PaperMunge = field(default_factory=PaperMunge)
    admitted: int = 0

    def __post_init__(self) -> None:
        self.end = DonorEnd(SUBJECT, {"gpus": 2}, self.admit, self.munge)

    async def admit(self, proven: socket.socket, nth: int) -> None:
        self.admitted += 1
        proven.close()


@contextlib.asynccontextmanager
async def lending() -> AsyncIterator[tuple[Lender, DonorAddress]]:
    """At the end nothing is kept of anybody: no place, no task, no descriptor."""
    lender, sock = Lender(), bound()
    listening = await lender.end.start(sock)
    before = open_files()
    yield lender, DonorAddress("127.0.0.1", sock.getsockname()[1], SUBJECT)
    async with asyncio.timeout(SECONDS):
        while lender.end.strangers._sources or open_files() > before:
            await asyncio.sleep(0.005)
    listening.close()


async def talk(sock: socket.socket, parts: list[bytes], how: str) -> bytes:
    """Say these parts, each by itself, then end like this; all that was heard."""
    loop, heard = asyncio.get_running_loop(), b""
    with sock, contextlib.suppress(OSError):
        for part in parts:
            await loop.sock_sendall(sock, part)
            await asyncio.sleep(0)
        if how == "says no more":
            sock.shutdown(socket.SHUT_WR)
        if how == "resets":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how in ("hangs up", "resets"):
            return heard
        async with asyncio.timeout(SECONDS):
            while data := await loop.sock_recv(sock, 4096):
                heard += data
    return heard


async def connected(address: DonorAddress) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (address.host, address.port))
    return sock


@few
@given(said, ending)
@example([b"a" * 32, b" ", b"forged\n", b"open\ngo\n"], "waits")
def test_whatever_a_stranger_says_the_donor_hands_over_nothing(parts, how):
    async def attack() -> None:
        async with lending() as (lender, address):
            heard = await talk(await connected(address), parts, how)
            hello, _, rest = heard.partition(b"\n")
            assert hello.startswith(b"gputopo-relay/2 ") or not hello
            assert rest in (b"", b"refused\n")
            assert await relay.ask(address, lender.munge) == {"gpus": 2}
        assert lender.admitted == 0

    before = open_files()
    run(attack())
    assert open_files() == before


@few
@given(said, ending, st.booleans())
@example([b"open\ngo\n"], "waits", False)
@example([b"g", b"o\n"], "waits", True)
@example([b"no\n"], "waits", True)
def test_who_is_proven_is_handed_over_for_the_right_words_alone(parts, how, is_asked_for):
    """With any others, any pieces and any end nothing is handed over."""

    async def attack() -> None:
        async with lending() as (lender, address):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            await handshake.prove(reader, writer, SUBJECT, lender.munge)
            if is_asked_for:
                writer.write(b"open\n")
                assert await reader.readline() == relay.OK
            sock = writer.get_extra_info("socket").dup()
            sock.setblocking(False)
            await talk(sock, parts, how)
            writer.transport.abort()
        words = (b"open\n" if is_asked_for else b"") + b"".join(parts)
        request, _, rest = words.partition(b"\n")
        is_right = relay._OPEN.fullmatch(request.strip()) and rest.startswith(relay.GO)
        assert not lender.admitted or is_right
        if is_asked_for and is_right and how in ("waits", "says no more"):
            assert lender.admitted

    before = open_files()
    run(attack())
    assert open_files() == before


def test_a_client_that_hangs_up_at_any_byte_leaves_nothing_and_gets_nothing():
    """From the first byte of its proof to the last of its words."""

    async def attack() -> None:
        async with lending() as (lender, address):
            for how in ("hangs up", "says no more"):
                length, at = 1, 0
                while at < length:
                    sock = await connected(address)
                    hello = await asyncio.get_running_loop().sock_recv(sock, 100)
                    ours, theirs = "c" * 32, hello.split()[1].decode()
                    sealed = lender.munge.seal(f"client {SUBJECT} {theirs} {ours}")
                    words = f"{ours} {sealed}\nopen\ngo".encode()
                    length = len(words)
                    heard = await talk(sock, [words[:at]], how)
                    assert b"ok" not in heard or at > words.index(b"\n")
                    at += 7
        assert lender.admitted == 0

    run(asyncio.wait_for(attack(), 120))


@few
@given(said, ending)
@example([b"gputopo-relay/2 " + b"b" * 32 + b"\n", b"ok forged\nok\n"], "waits")
def test_whatever_listens_in_the_donors_place_a_task_is_told_and_gives_nothing(parts, how):
    """It hears one line, the proof, which opens nothing for anybody else."""

    async def attack() -> None:
        heard: list[bytes] = []
        loop = asyncio.get_running_loop()
        with bound() as listening:
            listening.setblocking(False)

            async def answers() -> None:
                while True:
                    sock, _ = await loop.sock_accept(listening)
                    heard.append(await talk(sock, parts, how))

            answering = asyncio.create_task(answers())
            address = DonorAddress("127.0.0.1", listening.getsockname()[1], SUBJECT)
            async with asyncio.timeout(SECONDS):
                with pytest.raises((RemoteError, OSError)):
                    await JobEnd(address, PaperMunge(), tools()).reach()
            answering.cancel()
        # Its word and its credential, and not a byte of what was asked for.
        assert all(one.count(b"\n") <= 1 and b"open" not in one for one in heard)

    before = open_files()
    run(attack())
    assert open_files() == before


questions = st.one_of(
    st.binary(max_size=300),
    st.builds(
        lambda verb, host, port: f"{verb} {host} {port}".encode(),
        st.sampled_from(["A", "L", "C", "a", "A A"]),
        st.sampled_from(["127.0.0.1", "127.0.0.2", "::ffff:127.0.0.1", "::1", "0", "x%y"]),
        st.one_of(st.integers(-1, 70000), st.sampled_from(["", "٧", "²", "1_0"])),
    ),
)


@few
@given(st.lists(questions, max_size=4))
@example(["A 127.0.0.1 ²".encode()])
def test_no_question_but_the_knocks_own_address_brings_its_connection(asked):
    async def attack() -> None:
        loop = asyncio.get_running_loop()
        with bound() as server:
            door = Door(tools(), server.getsockname()[1])
            door.is_taken_in = True
            ours, theirs = socket.socketpair()
            await door.admit(theirs)
            [at] = door._waiting
            known = f"A {at[0]} {at[1]}".encode()
            for question in [one for one in asked if one != known]:
                assert await answered(loop, door._desk.name, question) == []
            [given_fd] = await answered(loop, door._desk.name, known)
            os.close(given_fd)
            assert not door._waiting
            ours.close()
            door.close()

    before = open_files()
    run(attack())
    assert open_files() == before


async def answered(loop: asyncio.AbstractEventLoop, name: str, question: bytes) -> list[int]:
    """The descriptors that the desk gives for a question."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asks:
        asks.setblocking(False)
        await loop.sock_connect(asks, f"\0{name}")
        asks.send(question)
        readable = asyncio.Event()
        loop.add_reader(asks.fileno(), readable.set)
        try:
            await asyncio.wait_for(readable.wait(), SECONDS)
            return socket.recv_fds(asks, 10, 4)[1]
        except ConnectionError:
            return []
        finally:
            loop.remove_reader(asks.fileno())


@given(st.binary(max_size=200), st.sampled_from([2, 20]), st.sampled_from([2, 10, 0, 255]))
def test_any_answer_of_the_kernels_is_read_or_refused(noise, kind, family):
    answers = (noise, struct.pack("=IHHIIBB", 0, kind, 0, 0, 0, family, 1) + noise)
    for answer in answers:
        with contextlib.suppress(RemoteError):
            found = sockets._read(answer)
            assert found is None or isinstance(found.uid, int)
