"""Attacks on the relay: on the job's own node, at a donor's door, and on a GPU that is lent.

Over loopback with a stand-in for munge, and live from three nodes.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

# The stand-in for munge lies beside the unit tests.
sys.path.append(str(Path(__file__).parents[2] / "slurm_plugin"))

from lending_harness import PROGRAM, borrower, donors
from paper_donor import bound, donor, tools
from paper_munge import PaperMunge

from slurm_cluster.cluster import Cluster
from slurm_plugin.node.remote import relay
from slurm_plugin.node.remote.relay import JobEnd
from tests.processes import open_files

MALLORY = 2003
TRIES = 60

#: Another user where the tests are root's, once all is read that only root may read.
BECOME = f"import contextlib, os, socket, sys, time\nos.getuid() or os.setuid({MALLORY})\n"
#: Connects from the victim's own port, at other addresses of this host; prints how often the
#: server behind answered.
STEALS = f"""{BECOME}
port, victim, tries, won = *map(int, sys.argv[1:4]), 0
for number in range(2, 2 + tries):
    with contextlib.closing(socket.socket()) as sock, contextlib.suppress(OSError):
        sock.settimeout(5)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((f"127.0.0.{{number}}", victim))
        sock.connect(("127.0.0.1", port))
        sock.sendall(b"list\\n")
        won += bool(sock.recv(100))
print(won)
"""

#: Keeps COUNT connections to HOST:PORT open for SECONDS, from as many addresses of this host as
#: there are, and says nothing, or (`talk`) words that look like a client's. Who is hung up on
#: comes again. Prints how many it has opened. After that it holds what it has. Without a cluster it
#: runs as ourselves: another user of this host has no place to keep.
CROWD = """
import contextlib, select, socket, sys, time
host, port, count, how, seconds = sys.argv[1], *map(int, sys.argv[2:4]), *sys.argv[4:6]
end, held, opened = time.monotonic() + float(seconds), set(), 0

def come(number):
    sock = socket.socket()
    sock.settimeout(5)
    if host.startswith("127."):
        sock.bind((f"127.0.{number // 200}.{number % 200 + 1}", 0))
    sock.connect((host, port))
    if how == "talk":
        sock.sendall(b"0" * 32 + b" MUNGE:AAAA:\\n")
    held.add(sock)

while time.monotonic() < end:
    for number in range(count - len(held)):
        with contextlib.suppress(OSError):
            come(number)
            opened += 1
    print(opened, flush=True)
    time.sleep(0.3)
    for sock in select.select(held, (), (), 0)[0]:
        with contextlib.suppress(OSError):
            if sock.recv(4096):
                continue
        sock.close()
        held.discard(sock)
time.sleep(60)
"""


class SlowMunge(PaperMunge):
    """As slow as a program that has to be started for it."""

    def opened(self, sealed: str) -> tuple[int, str]:
        time.sleep(0.05)
        return super().opened(sealed)


@contextlib.asynccontextmanager
async def mallory(program: str, *args: object) -> AsyncIterator[asyncio.subprocess.Process]:
    """An attacker's program on this host, for the length of a block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, *map(str, args)),
        stdout=asyncio.subprocess.PIPE,
        cwd="/",
    )
    yield process
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def printed(process: asyncio.subprocess.Process) -> int:
    """The number that the program printed."""
    assert process.stdout is not None
    return int(await asyncio.wait_for(process.stdout.readline(), 60))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user for once")
async def test_the_victims_source_port_at_other_addresses_opens_nothing():
    """A task of the job's is connected; mallory comes from the same port of 127.0.0.2 and on."""
    munge = PaperMunge()
    async with asyncio.timeout(120), donor(munge) as served:
        end, sock = JobEnd(served.address, munge, tools()), bound()
        listening = await end.start(sock)
        port = sock.getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"mine")
        assert await asyncio.wait_for(reader.read(4), 5) == b"MINE"
        victim = writer.get_extra_info("sockname")[1]
        async with mallory(STEALS, port, victim, TRIES) as thief:
            assert await printed(thief) == 0
        assert listening.refused == TRIES
        writer.write(b"mine")
        assert await asyncio.wait_for(reader.read(4), 5) == b"MINE"
        writer.close()
        listening.close()


@pytest.mark.parametrize("how", ["silent", "talk"])
@pytest.mark.parametrize("count", [16, 300])
async def test_strangers_before_the_door_do_not_keep_the_jobs_own_node_out(monkeypatch, count, how):
    """They come from the same source as the job's node does, and come again when hung up on.

    A job's node tries again for ten seconds; a busy machine takes its time.
    """
    monkeypatch.setattr(relay, "CONNECT_S", 60.0)
    munge = SlowMunge()
    async with (
        asyncio.timeout(280),
        donor(munge) as served,
        mallory(CROWD, served.address.host, served.address.port, count, how, 280) as crowd,
    ):
        assert await printed(crowd) == count
        for _ in range(5):
            start = time.monotonic()
            assert await relay.ask(served.address, munge) == {"gpus": 2}
            assert time.monotonic() - start < 60


async def test_who_says_nothing_is_hung_up_on_and_costs_a_bounded_number_of_descriptors():
    """Six hundred silent ones stand before the door; it holds few of them, for two seconds."""
    async with asyncio.timeout(60), donor(PaperMunge()) as served:
        before = open_files()
        address = served.address
        async with mallory(CROWD, address.host, address.port, 600, "silent", 0.1) as crowd:
            await printed(crowd)
            # The pipe from mallory's program is one of them. Who waits before the door comes in
            # as others are hung up on; a busy machine takes its time.
            seen = False
            while (held := open_files() - before) >= 10 or not seen:
                seen |= held >= 10
                assert held < 300
                await asyncio.sleep(0.05)


async def test_endless_words_fill_no_memory():
    """A stranger who never ends the line is stopped at the length of one."""
    async with asyncio.timeout(60), donor(PaperMunge()) as served:
        reader, writer = await asyncio.open_connection(served.address.host, served.address.port)
        await reader.readline()
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 100 << 20:
                writer.write(b"x" * 65536)
                await asyncio.wait_for(writer.drain(), 5)
                sent += 65536
        assert sent < 32 << 20
        assert served.end.refused == 1


#: A task of the victim's: it is connected, tells its port, and says nothing for some seconds.
HOLDS = """
import socket, sys, time
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as sock:
    print(sock.getsockname()[1], flush=True)
    time.sleep(8)
"""
#: Connects as fast as it can, for SECONDS, to every port of loopback at which a user listens.
FLOOD = """
import collections, os, socket, sys, time
rows = [line.split() for line in open("/proc/net/tcp").readlines()[1:]]
ports = [int(row[1][-4:], 16) for row in rows if row[3] == "0A" and row[7] == sys.argv[1]]
print(len(ports), flush=True)
end, held = time.monotonic() + float(sys.argv[2]), collections.deque()
for _ in range(3):
    os.fork()
# What is tried is whether they take the places, not this machine's few processors.
os.nice(19)
while time.monotonic() < end:
    for port in ports:
        held.append(socket.socket())
        held[-1].setblocking(False)
        held[-1].connect_ex(("127.0.0.1", port))
    while len(held) > 500:
        held.popleft().close()
"""
PROGRAMS = {"steals": STEALS, "crowd": CROWD, "holds": HOLDS, "flood": FLOOD}


@pytest.fixture
def attacked(lending: Cluster) -> Iterator[Cluster]:
    """The programs where every node can read them; what mallory left running is ended."""
    for name, text in PROGRAMS.items():
        lending.put("ctl", f"/cluster/remote/{name}.py", text)
    yield lending
    for host in ("ctl", "dgx1", "dgx2"):
        lending.run(host, "pkill -u mallory", check=False)
    lending.run("ctl", "rm -f /cluster/remote/*.py")


def left_running(cluster: Cluster, host: str, user: str, program: str, *args: object) -> int:
    """Starts one of PROGRAMS in the background; the number that it prints first."""
    told_at = f"/tmp/{program}.{user}"
    words = " ".join(map(str, ("python3", f"/cluster/remote/{program}.py", *args)))
    cluster.run(host, f"rm -f {told_at}")
    cluster.run(host, f"setsid {words} >{told_at} 2>&1 &", user=user)
    return int(cluster.read(host, told_at, timeout_s=20).split()[0])


@pytest.mark.cluster
@pytest.mark.enforced
@pytest.mark.long("20 s of connections; the same without a cluster is in every run")
def test_mallory_gets_no_lent_gpu_and_keeps_nobody_from_it(attacked):
    """From the job's node with a port of the job's, from the donor's node, and from a third."""
    job = borrower(attacked)
    [donor_job] = donors(attacked)
    [host], [node] = job.gpus, donor_job.gpus
    near = attacked.env_of(job.id)["GPUTOPO_ECHO_SERVERS"]
    door = donor_job.fields["Comment"].rpartition("=")[2]
    port = near.rpartition(":")[2]

    victim = left_running(attacked, host, "alice", "holds", port)
    steals = ["python3", "/cluster/remote/steals.py", port, str(victim), str(TRIES)]
    assert attacked.run(host, steals, user="mallory").out.strip() == "0"

    for source, target in ((host, node), (node, "127.0.0.1"), ("ctl", node)):
        left_running(attacked, source, "mallory", "crowd", target, door, 300, "silent", 30)
    started = time.monotonic()
    mine = attacked.run(host, [PROGRAM, "echo", near], user="alice")
    assert mine.out.split()[0] == node
    assert time.monotonic() - started < 25
    held = "ls /proc/$(pgrep -u alice -f 'gputopo-node donor')/fd | wc -l"
    assert int(attacked.run(node, held).out) < 350

    # In the words of a client, with a credential that is good, but mallory's.
    words = {"GPUTOPO_ECHO_SERVERS": f"{node}:{door}"}
    words["GPUTOPO_ECHO_SUBJECTS"] = f"{job.id}/{donor_job.id}"
    for source in (host, node, "ctl"):
        done = attacked.run(source, [PROGRAM, "echo"], user="mallory", env=words, check=False)
        assert done.code == 1, (source, done)
        assert "refused us" in done.err or "ended before" in done.err
    assert attacked.job(job.id).state == attacked.job(donor_job.id).state == "RUNNING"


@pytest.mark.cluster
@pytest.mark.enforced
@pytest.mark.long("20 s of a flood; the same without a cluster is in every run")
def test_a_flood_from_the_donors_own_node_keeps_no_new_connection_out(attacked):
    """Mallory has read in /proc/net/tcp where the donor and its server listen."""
    job = borrower(attacked)
    [donor_job] = donors(attacked)
    [host], [node] = job.gpus, donor_job.gpus
    near = attacked.env_of(job.id)["GPUTOPO_ECHO_SERVERS"]
    alice = attacked.run(node, "id -u alice").out.strip()
    assert left_running(attacked, node, "mallory", "flood", alice, 20) >= 2
    for _ in range(5):
        mine = attacked.run(host, [PROGRAM, "echo", near], user="alice")
        assert mine.out.split()[0] == node
    assert attacked.job(job.id).state == attacked.job(donor_job.id).state == "RUNNING"
