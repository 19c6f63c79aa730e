"""Connections handed over: who carries the bytes then, and what nobody gets by it."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from paper_donor import SERVE, SUBJECT, bound, donor, serving, tools
from paper_munge import PaperMunge

from slurm_plugin.errors import RemoteError
from slurm_plugin.node.remote import join, relay, sockets
from slurm_plugin.node.remote.donor import Donor
from slurm_plugin.node.remote.door import CARRY, Desk, Door, Tools
from slurm_plugin.node.remote.join import Ends
from slurm_plugin.node.remote.relay import DonorAddress, JobEnd

#: The server of paper_donor.py through epoll and a socket that does not block.
SERVE_BY_EPOLL = """
import select, socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
server.setblocking(False)
events, there = select.epoll(), {server.fileno(): server}
events.register(server, select.EPOLLIN)
while True:
    for fd, _ in events.poll():
        if fd != server.fileno():
            if data := there[fd].recv(1 << 20):
                there[fd].sendall(data.upper())
            else:
                events.unregister(fd)
                there.pop(fd).close()
            continue
        try:
            sock = server.accept()[0]
        except BlockingIOError:
            continue
        there[sock.fileno()] = sock
        sock.sendall(b"%d\\n" % sock.getpeername()[1])
        events.register(sock, select.EPOLLIN)
"""


#: One that listens by IPv6, where our knocks come in IPv6's form.
SERVE_BY_IPV6 = SERVE.replace("socket.socket()", "socket.socket(socket.AF_INET6)").replace(
    "(sys.argv[1], int", "('::ffff:' + sys.argv[1], int"
)
#: One that may not ask the kernel whose a connection is: socket(AF_NETLINK) is refused (seccomp).
SERVE_IN_A_FILTER = f"""
import ctypes, os, struct
number = {{"x86_64": 41, "aarch64": 198}}[os.uname().machine]
steps = (0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16), (0x15, 0, 1, 16)
steps += (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
library = ctypes.CDLL(None)
assert not library.prctl(38, 1, 0, 0, 0) and not library.prctl(22, 2, program, 0, 0)
{SERVE}"""
SERVERS = {
    "threads": SERVE,
    "epoll": SERVE_BY_EPOLL,
    "IPv6": SERVE_BY_IPV6,
    "no netlink": SERVE_IN_A_FILTER,
}


def carriers() -> set[str]:
    """The processes that carry bytes now, of this host; their ids."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(tools().folder / CARRY).encode() in path.read_bytes():
                found.add(path.parent.name)
    return found


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,5")


async def open_to(lender: Donor) -> tuple[DonorAddress, JobEnd]:
    address = DonorAddress("127.0.0.1", await lender.open(), SUBJECT)
    return address, JobEnd(address, PaperMunge(), tools())


@pytest.mark.parametrize("text", SERVERS.values(), ids=SERVERS)
async def test_the_server_itself_has_the_connection_from_the_network(tmp_path, text):
    before = carriers()
    async with serving(tmp_path, text=text) as lender:
        _, end = await open_to(lender)
        assert lender._door is not None
        assert lender._door.is_taken_in
        for _ in range(3):
            reached = await end.reach()
            reader, writer = await asyncio.open_connection(sock=reached)
            # It sees our port, and no process stands between.
            assert int(await reader.readline()) == reached.getsockname()[1]
            writer.write(b"x" * 300_000)
            assert await reader.readexactly(300_000) == b"X" * 300_000
            writer.close()
        assert carriers() == before


async def test_a_server_without_the_library_is_served_by_a_process_of_ours(tmp_path):
    before = carriers()
    async with serving(tmp_path, "env", "-u", "LD_PRELOAD") as lender:
        _, end = await open_to(lender)
        reached = await end.reach()
        reader, writer = await asyncio.open_connection(sock=reached)
        assert int(await reader.readline()) != reached.getsockname()[1]
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"HELLO"
        assert len(carriers() - before) == 1
        writer.close()
    assert carriers() == before


async def test_nobody_reaches_such_a_server_past_the_donors_end(tmp_path):
    """Other users of the donor's node know its port; the server never sees their connections."""
    async with serving(tmp_path) as lender:
        _, end = await open_to(lender)
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", lender._server_port)
            writer.write(b"hello")
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()
        reader, writer = await asyncio.open_connection(sock=await end.reach())
        assert int(await reader.readline())
        writer.close()


async def test_three_hundred_connections_at_once_all_arrive(tmp_path):
    async with serving(tmp_path) as lender:
        _, end = await open_to(lender)
        seen = set()

        async def one() -> None:
            reader, writer = await asyncio.open_connection(sock=await end.reach())
            port = writer.get_extra_info("sockname")[1]
            assert int(await reader.readline()) == port
            seen.add(port)
            writer.close()

        async with asyncio.timeout(120):
            await asyncio.gather(*(one() for _ in range(300)))
        assert len(seen) == 300


#: A task: connects to the port, says on which it came out, then sends and hears.
TASK = """
import socket, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20)
sock.settimeout(None)
told = sock.makefile("rb")
print(int(told.readline()) == sock.getsockname()[1], sock.getpeername()[1])
sock.sendall(b"hello")
print(told.read(5).decode())
# Datagrams and other ports are no business of ours.
other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
other.connect(("127.0.0.1", int(sys.argv[1])))
assert other.getpeername()[1] == int(sys.argv[1]) and other.getsockopt(1, 3) == 2
with socket.create_server(("127.0.0.1", 0)) as mine:
    with socket.create_connection(mine.getsockname()) as both:
        assert both.getpeername() == mine.getsockname()
"""


@pytest.mark.parametrize("is_preloaded", [True, False])
async def test_a_task_with_the_library_has_the_connection_to_the_server_itself(
    tmp_path, is_preloaded
):
    before = carriers()
    async with serving(tmp_path) as lender:
        address, _ = await open_to(lender)
        ends = Ends(tools())
        port = ends.add(address)
        kept = asyncio.create_task(join.keep(ends, PaperMunge(), os.getpid()))
        variables = {"GPUTOPO_WIRE": ends.variable, "PATH": "/usr/bin:/bin"}
        if is_preloaded:
            variables["LD_PRELOAD"] = tools().library
        task = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", TASK, str(port)), stdout=subprocess.PIPE, env=variables
        )
        told = (await asyncio.wait_for(task.communicate(), 30))[0].decode().split()
        assert task.returncode == 0
        # Directly its peer is the donor's end; else it is our own on loopback.
        expected = ["True", str(address.port)] if is_preloaded else ["False", str(port)]
        assert told == [*expected, "HELLO"]
        assert not is_preloaded or carriers() == before
        kept.cancel()


async def test_a_task_whose_donor_has_gone_is_refused_as_by_a_closed_port(tmp_path):
    async with serving(tmp_path) as lender:
        address, _ = await open_to(lender)
        ends = Ends(tools())
        port = ends.add(address)
        kept = asyncio.create_task(join.keep(ends, PaperMunge(), os.getpid()))
        await lender.close()
        variables = {"GPUTOPO_WIRE": ends.variable, "LD_PRELOAD": tools().library}
        task = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", TASK, str(port)), stderr=subprocess.PIPE, env=variables
        )
        said = (await asyncio.wait_for(task.communicate(), 30))[1].decode()
        assert "ConnectionRefusedError" in said
        kept.cancel()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user for once")
async def test_another_user_who_knows_the_desks_name_gets_nothing(tmp_path):
    """Its name stands in /proc/net/unix. The kernel says who asks."""
    asked: list[list[str]] = []
    desk = Desk()

    async def answer(words: list[str]) -> socket.socket:
        asked.append(words)
        return socket.socket()

    desk.start(answer)
    ask = (
        "import os, socket, sys\n"
        "os.setuid(int(sys.argv[2]))\n"
        "sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "sock.connect('\\0' + sys.argv[1])\n"
        "try:\n    sock.send(b'C 1')\n    print(sock.recv(1))\n"
        "except OSError:\n    print(b'')\n"
    )
    for uid, heard in ((2003, "b''"), (os.getuid(), "b'y'")):
        words = (sys.executable, "-c", ask, desk.name, str(uid))
        mallory = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, cwd="/")
        told = (await asyncio.wait_for(mallory.communicate(), 20))[0]
        assert told.decode().strip() == heard
    assert asked == [["C", "1"]]
    desk.close()


@pytest.mark.parametrize(
    "question", [b"", b"A", b"A 127.0.0.1 x", b"A x 1", b"A 127.0.0.1 1", b"\xff\0 1", b"L L"]
)
async def test_other_questions_are_answered_with_nothing(question):
    sock = bound()
    door = Door(tools(), sock.getsockname()[1])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asks:
        asks.setblocking(False)
        await asyncio.get_running_loop().sock_connect(asks, f"\0{door._desk.name}")
        asks.send(question)
        heard = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(asks, 10), 10)
    assert (heard, door.is_taken_in) == (b"", False)
    door.close()
    sock.close()


@pytest.mark.parametrize("which", [min, max])
async def test_a_process_between_that_is_killed_ends_both_sides(which):
    munge = PaperMunge()
    before = carriers()
    async with donor(munge) as lender:
        end, sock = JobEnd(lender.address, munge, tools()), bound()
        listening = await end.start(sock)
        reader, writer = await asyncio.open_connection("127.0.0.1", sock.getsockname()[1])
        writer.write(b"work")
        assert await reader.readexactly(4) == b"WORK"
        # One on each side: this server is in our own process, without the library.
        ours = carriers() - before
        assert len(ours) == 2
        os.kill(int(which(ours, key=int)), signal.SIGKILL)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        # Until then it may still have something to say.
        writer.close()
        deadline = time.monotonic() + 10
        while any(map(is_alive, ours)) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        assert not [pid for pid in ours if is_alive(pid)]
        listening.close()


def is_alive(pid: str) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("words", [b"stop", b"g", b"GET / HTTP/1.1\r\n\r\n"])
async def test_who_is_proven_and_says_other_words_is_not_handed_over(words):
    munge = PaperMunge()
    async with donor(munge) as lender:
        reader, writer = await relay.enter(lender.address, "open", munge)
        assert await reader.readline() == relay.OK
        writer.write(words)
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        assert lender.end.refused == 1
        writer.close()


async def test_without_the_files_in_c_nothing_is_lent_and_one_line_says_so(tmp_path):
    async with serving(tmp_path) as lender:
        lender._tools = Tools(tmp_path)
        with pytest.raises(RemoteError, match=rf"{tmp_path}/{CARRY}: no such file; it lies beside"):
            await lender.open()
    (tmp_path / "gputopo-node").symlink_to(tools().folder / "gputopo-node")
    assert Tools.beside(str(tmp_path / "gputopo-node")).folder == tools().folder
    with pytest.raises(RemoteError, match="no such file"):
        Ends(Tools(tmp_path)).add(DonorAddress("127.0.0.1", 1, SUBJECT))


@pytest.mark.parametrize("words", [(), ("1",), ("x", "y"), ("-1", "0"), ("0", "0x"), ("0", "999")])
def test_the_program_that_carries_wants_two_connections(words):
    done = subprocess.run(
        [str(tools().folder / CARRY), *words], capture_output=True, check=False, timeout=20
    )
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


async def test_a_listener_that_can_open_no_more_files_goes_on_later(monkeypatch):
    """Whoever has filled the table meanwhile; others wait in the kernel's queue."""
    munge = PaperMunge()
    async with donor(munge) as lender:
        end, sock = JobEnd(lender.address, munge, tools()), bound()
        loop, failed = asyncio.get_running_loop(), 0
        accept = loop.sock_accept

        async def full(listening: socket.socket) -> tuple[socket.socket, object]:
            nonlocal failed
            failed += 1
            if failed < 3:
                raise OSError(24, "Too many open files")
            return await accept(listening)

        monkeypatch.setattr(loop, "sock_accept", full)
        listening = await end.start(sock)
        reader, writer = await asyncio.open_connection("127.0.0.1", sock.getsockname()[1])
        writer.write(b"late")
        assert await asyncio.wait_for(reader.readexactly(4), 20) == b"LATE"
        assert failed >= 3
        assert sockets.listener(sock.getsockname()[1]) == os.getuid()
        writer.close()
        listening.close()
