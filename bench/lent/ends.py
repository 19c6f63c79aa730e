"""Both ends of the relay in a process of their own, before two servers and one that is for itself.

The proofs are those of docs/remote-setup.md with a stand-in for munge: no figure is of them.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Process
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from slurm_plugin.node.remote import join, sockets
from slurm_plugin.node.remote.door import DOOR, Door, Tools
from slurm_plugin.node.remote.handshake import Munge
from slurm_plugin.node.remote.join import Ends
from slurm_plugin.node.remote.relay import DonorAddress, DonorEnd

SUBJECT = "1/2"
HOST = "127.0.0.1"
#: What is carried when this says how: GPUTOPO_DOOR is not for this server.
PLAIN = {DOOR: "", "LD_PRELOAD": ""}


class Believing(Munge):
    """Vouches for everybody."""

    def seal(self, text: str) -> str:
        """The text as one word."""
        return text.replace(" ", "_")

    def opened(self, sealed: str) -> tuple[int, str]:
        """Our own uid, and the text."""
        return os.getuid(), sealed.replace("_", " ")


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


async def _server(environment: dict[str, str], port: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "bench.lent.load", "serve", HOST, str(port)]
    server = subprocess.Popen(words, env={**os.environ, **environment})
    deadline = time.monotonic() + 30
    while sockets.listener(port) is None:
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the benchmark's server does not listen")
        await asyncio.sleep(0.05)
    return server


async def _serve(line: Connection, folder: Path) -> None:
    tools, munge = Tools(folder), Believing()
    ends = Ends(tools)
    direct = _free_port()
    servers = [await _server(PLAIN, direct)]
    ports = []
    for is_taken_in in (True, False):
        behind = _free_port()
        door = Door(tools, behind)
        servers.append(await _server(door.environment() if is_taken_in else PLAIN, behind))
        if door.is_taken_in != is_taken_in:
            raise RuntimeError("gputopo-wire.so is not where it should be")
        listening = socket.create_server((HOST, 0))
        await DonorEnd(SUBJECT, {}, door.admit, munge).start(listening)
        ports.append(ends.add(DonorAddress(HOST, listening.getsockname()[1], SUBJECT)))
    kept = asyncio.create_task(join.keep(ends, munge, os.getppid()))
    await asyncio.sleep(0.1)
    line.send({"direct": direct, "one": ports[0], "two": ports[1], "wire": ends.variable})
    asked = asyncio.Event()
    asyncio.get_running_loop().add_reader(line.fileno(), asked.set)
    while not kept.done():
        await asked.wait()
        asked.clear()
        if not line.poll():
            continue
        if line.recv() == "end":
            break
        # Only processes that carried bytes have ended by now: the servers go on.
        while any(process.poll() is None for process in tools._running):
            await asyncio.sleep(0.01)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        line.send(used.ru_utime + used.ru_stime)
    for server in servers:
        server.kill()


def _main(line: Connection, folder: Path) -> None:
    asyncio.run(_serve(line, folder))


class Site:
    """What the benchmark asks of the process with the ends."""

    def __init__(self, line: Connection, found: dict[str, Any]) -> None:
        self._line, self.found = line, found

    def carried_s(self) -> float:
        """The processor time of all that carried bytes until now; they must have ended."""
        self._line.send("used")
        return float(self._line.recv())


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """The ends, with gputopo-carry and gputopo-wire.so of this folder."""
    ours, theirs = Pipe()
    process = Process(target=_main, args=(theirs, folder), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Site(ours, ours.recv())
        ours.send("end")
        process.join(10)
    finally:
        process.kill()
