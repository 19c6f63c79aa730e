"""Floods of a donor's two ports by another user of its node, and who is not asked about them."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from paper_donor import bound, donor, serving, tools
from paper_munge import PaperMunge

from slurm_plugin.errors import RemoteError
from slurm_plugin.node.remote import handshake, relay, sockets
from slurm_plugin.node.remote.relay import DonorAddress, JobEnd
from slurm_plugin.node.remote.streams import AT_ONCE, Listener

STRANGER = os.getuid() + 1
ROOT = Path(__file__).resolve().parents[4]


def others(monkeypatch: pytest.MonkeyPatch, whose: object) -> None:
    """The kernel says this of every connection, or raises it."""

    def peer_of(_: socket.socket) -> object:
        if isinstance(whose, Exception):
            raise whose
        return whose

    monkeypatch.setattr(relay, "peer_of", peer_of)


async def heard_at(port: int) -> bytes:
    """All that a port says to who says nothing, until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return b""


async def test_another_user_of_the_donors_node_takes_no_place_and_no_check(monkeypatch):
    looked_at = 0

    async def let_in(*_: object) -> None:
        nonlocal looked_at
        looked_at += 1

    munge = PaperMunge()
    async with donor(munge) as lender:
        others(monkeypatch, STRANGER)
        with monkeypatch.context() as patch:
            patch.setattr(handshake, "let_in", let_in)
            heard = await asyncio.gather(*(heard_at(lender.address.port) for _ in range(100)))
        assert (set(heard), looked_at, lender.end.refused) == ({b""}, 0, 0)
        others(monkeypatch, os.getuid())
        assert await relay.ask(lender.address, munge) == {"gpus": 2}


@pytest.mark.parametrize(
    "whose", [None, RemoteError("the kernel's sock_diag: Permission denied")], ids=["far", "untold"]
)
async def test_who_comes_from_elsewhere_is_asked_for_a_proof(monkeypatch, whose):
    munge = PaperMunge()
    async with donor(munge) as lender:
        others(monkeypatch, whose)
        assert await relay.ask(lender.address, munge) == {"gpus": 2}


async def test_what_comes_from_this_very_host_waits_in_a_queue_of_its_own():
    """A flood from there fills that one, and nobody can take the port from either."""
    with bound() as all_others, contextlib.ExitStack() as held:
        own = sockets.from_here(all_others)
        if own is None:
            pytest.skip("this kernel lets root alone choose a device")
        held.enter_context(own)
        all_others.setblocking(False)
        held.enter_context(socket.create_connection(all_others.getsockname()))
        own.settimeout(20)
        held.enter_context(own.accept()[0])
        with pytest.raises(BlockingIOError):
            all_others.accept()
        with socket.socket() as thief, pytest.raises(OSError, match="in use"):
            thief.bind(all_others.getsockname())


async def test_a_crowd_that_waits_leaves_all_else_its_turn():
    """More wait than are accepted at once; what was called for before they came runs first."""
    order: list[str] = []

    def refuses(_: socket.socket) -> bool:
        order.append("one")
        return False

    async def serve(_: socket.socket) -> None: ...

    with bound() as sock, contextlib.ExitStack() as crowd:
        for _ in range(3 * AT_ONCE):
            crowd.enter_context(socket.create_connection(sock.getsockname()))
        listening = Listener(sock, refuses, serve)
        asyncio.get_running_loop().call_later(0, order.append, "other")
        while listening.refused < 3 * AT_ONCE:
            await asyncio.sleep(0)
        listening.close()
    assert order.index("other") <= 2 * AT_ONCE


@contextlib.contextmanager
def flooded(port: int):
    """Six processes of another user connect to this port as fast as they can."""
    words = ("-m", "bench.lent.load", "flood", "127.0.0.1", str(port), "65534")
    with contextlib.ExitStack() as floods:
        for _ in range(6):
            process = subprocess.Popen(
                ["nice", "-n", "19", sys.executable, *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=ROOT,
            )
            floods.callback(process.wait)
            floods.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"floods\n"
        yield


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user for once")
async def test_a_flood_of_the_servers_own_port_keeps_no_connection_of_the_jobs_out(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,5")
    async with serving(tmp_path) as lender:
        address = DonorAddress("127.0.0.1", await lender.open(), "4711/4712")
        end = JobEnd(address, PaperMunge(), tools())
        with flooded(lender._server_port):
            # On a busy machine the flood fills the queue, and the kernel sends a lost SYN again
            # after 1, 3, 7 and 15 s.
            for _ in range(3):
                async with asyncio.timeout(80):
                    reached = await end.reach()
                    reader, writer = await asyncio.open_connection(sock=reached)
                    assert int(await reader.readline()) == reached.getsockname()[1]
                    writer.close()
        # And none of the flood's was passed on, or is kept.
        assert not lender._door._waiting
