"""A donor serves and says where; and a job that meets it."""

import asyncio
import contextlib
import functools
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from paper_donor import tools
from paper_munge import PaperMunge

from slurm_plugin.base.job_notes.loan import LoanDonor
from slurm_plugin.config import presets
from slurm_plugin.errors import RemoteError
from slurm_plugin.node import program
from slurm_plugin.node.remote import donor, inside, join, relay, sockets
from slurm_plugin.node.remote.donor import Donor, DonorTask
from slurm_plugin.node.remote.relay import DonorAddress, JobEnd

ECHO = presets.load("echo")
SERVE = """
import socket, sys
host, port = sys.argv[1], int(sys.argv[2])
server = socket.create_server((host, port))
while True:
    near = server.accept()[0]
    near.sendall(near.recv(100).upper())
    near.close()
"""


def allows_networks() -> bool:
    """Whether this host lets a process have a network namespace."""
    try:
        inside.check()
    except RemoteError:
        return False
    return True


def free_range(count: int) -> tuple[int, int]:
    """Ports that are free together."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            low = probe.getsockname()[1]
        if low + count < 65536 and len(list(sockets.free("", low, low + count - 1, 0))) == count:
            return low, low + count - 1


@functools.cache
def program_at() -> Path:
    """The packed program, beside its two files in C."""
    packed = tools().folder / "gputopo-node"
    program.write(packed, sys.executable)
    return packed


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DonorTask:
    """A donor of two GPUs whose server is a small script."""
    (tmp_path / "serve.py").write_text(SERVE)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,5")
    words = (sys.executable, str(tmp_path / "serve.py"), "{bind}", "{port}")
    low, high = free_range(4)
    return DonorTask(7, 71, 2, low, high, False, replace(ECHO, server=words), str(program_at()))


@contextlib.asynccontextmanager
async def opened(task: DonorTask, munge: PaperMunge) -> AsyncIterator[tuple[Donor, DonorAddress]]:
    """A donor that serves, and its address."""
    lender = Donor(task, munge)
    try:
        yield lender, DonorAddress("127.0.0.1", await lender.open(), "7/71")
    finally:
        await lender.close()


@pytest.fixture
def wide(task: DonorTask) -> DonorTask:
    """A donor whose server listens on every address, with the packed program."""
    return replace(task, preset=replace(task.preset, loopback=False))


NETWORKS = pytest.mark.skipif(
    not allows_networks(), reason="this host gives users no network namespace"
)


async def open_through(address: DonorAddress, munge: PaperMunge, words: bytes) -> bytes:
    reached = await JobEnd(address, munge, tools()).reach()
    reader, writer = await asyncio.open_connection(sock=reached)
    writer.write(words)
    heard = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    return heard


async def test_a_donor_serves_at_its_address_and_leaves_nothing(task):
    munge = PaperMunge()
    async with opened(task, munge) as (lender, address):
        told = await relay.ask(address, munge)
        assert (told["gpus"], told["port"], told["preset"]["name"]) == (2, 0, "echo")
        assert await open_through(address, munge, b"hello") == b"HELLO"
        behind = lender._server_port
        assert {task.low <= port <= task.high for port in (address.port, behind)} == {True}
    assert sockets.listener(behind) is None
    assert sockets.listener(address.port) is None


async def test_where_the_network_is_trusted_tasks_go_to_the_server_itself(task):
    munge = PaperMunge()
    async with opened(replace(task, trust_network=True), munge) as (_, address):
        port = (await relay.ask(address, munge))["port"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello")
        assert await reader.read() == b"HELLO"
        reader, _ = await relay.enter(address, "open", munge)
        assert await reader.read() == b""


@NETWORKS
async def test_a_server_that_listens_on_every_address_is_reached_through_the_relay_alone(
    wide, tmp_path
):
    """It has a network of its own, in which its port is free whatever runs on the host."""
    munge = PaperMunge()
    async with opened(wide, munge) as (lender, address):
        assert await open_through(address, munge, b"hello") == b"HELLO"
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", lender._server_port)) != 0
        pid = lender._process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    # Two processes further down, the kernel ends the server itself.
    deadline = time.monotonic() + 30
    while (left := running(tmp_path / "serve.py")) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert not left


@pytest.mark.parametrize("inside_it", [False, pytest.param(True, marks=NETWORKS)])
async def test_what_a_server_starts_ends_with_it(task, wide, inside_it, tmp_path):
    """A script that starts the middleware's server and stays in front of it, say."""
    lent = wide if inside_it else task
    words = ("bash", "-c", f'(exec -a {tmp_path} sleep 987) & exec "$@"', "sh", *lent.preset.server)
    munge, script = PaperMunge(), replace(lent.preset, server=words)
    async with opened(replace(lent, preset=script), munge) as (_, address):
        assert await open_through(address, munge, b"hello") == b"HELLO"
        assert running(tmp_path)
    deadline = time.monotonic() + 30
    while (left := running(tmp_path)) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert not left


@pytest.mark.parametrize("inside_it", [False, pytest.param(True, marks=NETWORKS)])
async def test_a_server_is_asked_to_end_before_it_is_killed(task, wide, inside_it, tmp_path):
    """It may let calls end, and save what it has to; one that does not end is killed."""
    asked, serve = tmp_path / "asked", tmp_path / "serve.py"
    tells = f"import signal\nsignal.signal(signal.SIGTERM, lambda *_: open({str(asked)!r}, 'w'))\n"
    serve.write_text(tells + serve.read_text())
    began = 0.0
    async with opened(wide if inside_it else task, PaperMunge()) as (_, address):
        assert address.port
        began = time.monotonic()
    assert asked.exists()
    assert time.monotonic() - began < 5 * inside.ENDS_S
    assert not running(serve)


@NETWORKS
async def test_one_that_ends_when_it_is_asked_keeps_nobody_waiting(wide):
    async with opened(wide, PaperMunge()):
        began = time.monotonic()
    assert time.monotonic() - began < inside.ENDS_S / 2


PORTS = """
import socket, sys, threading, time
def serve(nth):
    time.sleep(nth / 2)
    server = socket.create_server((sys.argv[1], int(sys.argv[2]) + nth))
    while True:
        near = server.accept()[0]
        near.sendall(near.recv(100) + b"%d" % nth)
        near.close()
threading.Thread(target=serve, args=(1,)).start()
serve(0)
"""


@pytest.mark.parametrize("inside_it", [False, pytest.param(True, marks=NETWORKS)])
async def test_a_server_of_two_ports_is_reached_at_both_and_at_no_other(task, wide, inside_it):
    """The job's end listens at two consecutive ports; a third one cannot be asked for.

    The server opens its second port half a second after the first: until then it is not ready.
    """
    given = wide if inside_it else task
    Path(task.preset.server[1]).write_text(PORTS)
    munge = PaperMunge()
    both = replace(given, preset=replace(given.preset, ports=2))
    async with opened(both, munge) as (_, address):
        donors = [LoanDonor("127.0.0.1", 0b11, 71, address.port)]
        variables, ends = await join.meet(7, donors, munge, tools())
        first = int(variables["GPUTOPO_ECHO_SERVERS"].rpartition(":")[2])
        assert [sock.getsockname()[1] - first for _, sock, _ in ends.sockets] == [0, 1]
        kept = asyncio.create_task(join.keep(ends, munge, os.getpid()))
        for nth in (1, 0):
            reader, writer = await asyncio.open_connection("127.0.0.1", first + nth)
            writer.write(b"port ")
            assert await asyncio.wait_for(reader.read(), 10) == b"port %d" % nth
        third = await JobEnd(address, munge, tools(), nth=2).reach()
        reader, writer = await asyncio.open_connection(sock=third)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        kept.cancel()


def running(script: Path) -> list[str]:
    """The processes that have this path on their command lines."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(script).encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


@NETWORKS
async def test_such_a_server_that_ends_is_no_donors(wide):
    ends = replace(wide.preset, server=("false", "{port}"))
    lender = Donor(replace(wide, preset=ends), PaperMunge())
    with pytest.raises(RemoteError, match="false ended before it listened") as told:
        await lender.open()
    # Seen by its end of the line, not by its silence.
    assert "timed out" not in str(told.value)
    await lender.close()


@NETWORKS
async def test_such_a_server_may_take_its_time_until_it_listens(wide, tmp_path, monkeypatch):
    monkeypatch.setattr(donor, "LISTENS_S", 12.0)
    slow = ("sh", "-c", f"sleep 2; exec {sys.executable} {tmp_path}/serve.py {{bind}} {{port}}")
    async with opened(replace(wide, preset=replace(wide.preset, server=slow)), PaperMunge()):
        pass


async def test_where_a_node_allows_no_network_of_its_own_such_a_server_is_not_started(
    wide, monkeypatch
):
    monkeypatch.setattr(inside, "UNSHARE", ("sh", "-c", "echo unshare: not permitted >&2; exit 1"))
    with pytest.raises(RemoteError, match=r"\(unshare: not permitted\); it needs trust_network"):
        await Donor(wide, PaperMunge()).open()


async def test_two_donors_on_one_node_share_no_port(task):
    munge = PaperMunge()
    lenders = [Donor(task, munge), Donor(replace(task, job_id=75), munge)]
    ports = [await lender.open() for lender in lenders]
    taken = [*ports, *(lender._server_port for lender in lenders)]
    assert sorted(taken) == list(range(task.low, task.high + 1))
    third = Donor(replace(task, job_id=79), munge)
    with pytest.raises(RemoteError, match=f"no free port in {task.low}-{task.high}"):
        await third.open()
    for lender in lenders:
        await lender.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"preset": replace(ECHO, server=("rkudad", "{port}"))}, "rkudad: no such program"),
        (
            {"preset": replace(ECHO, server=("env", "P={port}", "rkudad"))},
            "rkudad: no such program",
        ),
        ({"gpus": 3}, "2 GPUs; expected 3"),
        (
            {"preset": replace(ECHO, server=("false", "{port}"))},
            r"false ended \(exit 1\) before it listened",
        ),
    ],
    ids=["missing program", "missing behind env", "other GPUs", "a server that ends"],
)
async def test_a_donor_that_cannot_serve_says_so_in_one_line(task, change, says):
    lender = Donor(replace(task, **change), PaperMunge())
    with pytest.raises(RemoteError, match=f"{socket.gethostname()}: {says}"):
        await lender.open()
    await lender.close()
    assert len(list(sockets.free("", task.low, task.high, 0))) == 4


async def test_another_users_server_is_not_taken_for_the_donors_own(task, monkeypatch):
    """Whoever was faster to take a port would get what the job sends to its GPUs."""
    monkeypatch.setattr(sockets, "check", lambda address: None)
    monkeypatch.setattr(sockets, "listener", lambda port: os.getuid() + 1)
    lender = Donor(task, PaperMunge())
    with pytest.raises(RemoteError, match="did not listen"):
        await asyncio.wait_for(lender.open(), 60)
    assert lender._process.returncode is not None
    await lender.close()


def test_a_donors_task_is_read_from_its_batch_script():
    text = {"parent": 7, "gpus": 2, "low": 1, "high": 9, "trust_network": False}
    text["preset"] = asdict(ECHO)
    found = donor.read(json.dumps(text), {"SLURM_JOB_ID": "71"}, "/bin/node")
    assert (found.subject, found.relays, found.preset) == ("7/71", True, ECHO)
    for bad in ("", "{}", "[]", json.dumps(text | {"gpus": "x"})):
        with pytest.raises(RemoteError, match="not a donor's task"):
            donor.read(bad, {"SLURM_JOB_ID": "71"}, "/bin/node")


async def test_a_job_meets_its_donors_and_its_tasks_reach_them(task):
    munge = PaperMunge()
    async with opened(task, munge) as (_, address):
        donors = [LoanDonor("127.0.0.1", 0b11, 71, address.port)]
        variables, ends = await join.meet(7, donors, munge, tools())
        [(_, sock, _)] = ends.sockets
        address = f"127.0.0.1:{sock.getsockname()[1]}"
        assert variables == {
            "GPUTOPO_ECHO_SERVERS": address,
            "GPUTOPO_REMOTE_GPUS": "127.0.0.1:2",
            "GPUTOPO_WIRE": f"{ends.desk.name} {sock.getsockname()[1]}",
        }
        kept = asyncio.create_task(join.keep(ends, munge, os.getpid()))
        reader, writer = await asyncio.open_connection(*sock.getsockname())
        writer.write(b"hello")
        assert await reader.read() == b"HELLO"
        kept.cancel()


async def test_a_donor_that_lends_another_number_is_not_taken(task):
    munge = PaperMunge()
    async with opened(task, munge) as (_, address):
        donors = [LoanDonor("127.0.0.1", 0b111, 71, address.port)]
        with pytest.raises(RemoteError, match="lends 2 GPUs; expected 3"):
            await join.meet(7, donors, munge, tools())


async def test_a_server_that_takes_no_port_is_named_by_its_own_host(task):
    """Its clients ask that host for the port (Cricket: rpcbind), not the job's."""
    munge = PaperMunge()
    environment = {"WHERE": "{hosts}", "WHICH": "{ids}"}
    middleware = replace(
        task.preset,
        server=("sleep", "60"),
        takes_port=False,
        loopback=False,
        environment=environment,
    )
    async with opened(replace(task, trust_network=True, preset=middleware), munge) as (_, address):
        donors = [LoanDonor("localhost", 0b11, 71, address.port)]
        variables, ends = await join.meet(7, donors, munge, tools())
        assert not ends.sockets
        assert {name: variables[name] for name in environment} == {
            "WHERE": "localhost",
            "WHICH": "71",
        }
