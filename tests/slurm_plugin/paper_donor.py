"""A donor's end of the relay before a small server, in the test's own process."""

import asyncio
import atexit
import contextlib
import functools
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from paper_munge import PaperMunge

from slurm_plugin.config import presets
from slurm_plugin.node import program
from slurm_plugin.node.remote import donor as donor_job
from slurm_plugin.node.remote.door import Door, Tools
from slurm_plugin.node.remote.relay import DonorAddress, DonorEnd

SUBJECT = "4711/4712"
#: AdminComment of a job to which job 71 lends two GPUs of dgx2.
COMMENT = "[gpu-topo: remote=allow] [gpu-slots: placed token=a loan=dgx1/3,dgx2/6/71/{port} at=5]"


#: Says to each connection where it comes from, and then all that it hears in capitals.
SERVE = """
import socket, sys, threading
def one(sock):
    with sock:
        sock.sendall(b"%d\\n" % sock.getpeername()[1])
        while data := sock.recv(1 << 20):
            sock.sendall(data.upper())
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind((sys.argv[1], int(sys.argv[2])))
server.listen(64)
while True:
    threading.Thread(target=one, args=(server.accept()[0],), daemon=True).start()
"""

WIRE = Path(program.__file__).with_name("carry")


@functools.cache
def tools() -> Tools:
    """gputopo-carry and gputopo-wire.so, compiled once for this process."""
    if not (shutil.which("gcc") and shutil.which("make")):
        pytest.skip("no gcc and make here")
    folder = Path(tempfile.mkdtemp(prefix="gputopo-wire-"))
    atexit.register(shutil.rmtree, folder)
    command = ["make", "-s", "-C", str(WIRE), f"OUT={folder}/build", f"TO={folder}"]
    subprocess.run(command, check=True)
    # Another user of this host may run what a test gives him.
    folder.chmod(0o755)
    return Tools(folder)


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

    def __init__(self, address: DonorAddress, end: DonorEnd, server: asyncio.Server) -> None:
        self.address, self.end, self.server = address, end, server


@contextlib.asynccontextmanager
async def donor(munge: PaperMunge) -> AsyncIterator[Donor]:
    server = await asyncio.start_server(shouting, sock=bound())
    port = server.sockets[0].getsockname()[1]
    door = Door(tools(), port)
    end = DonorEnd(SUBJECT, {"gpus": 2}, door.admit, munge)
    sock = bound()
    listening = await end.start(sock)
    yield Donor(DonorAddress("127.0.0.1", sock.getsockname()[1], SUBJECT), end, server)
    listening.close()
    door.close()
    server.close()


@contextlib.asynccontextmanager
async def serving(folder: Path, *before: str, text: str = SERVE) -> AsyncIterator[donor_job.Donor]:
    """A donor whose server is this script, started by the words `before`."""
    script = folder / "serve.py"
    script.write_text(text)
    words = (*before, sys.executable, str(script), "{bind}", "{port}")
    preset = replace(presets.load("echo"), server=words)
    program = str(tools().folder / "gputopo-node")
    task = donor_job.DonorTask(4711, 4712, 2, 20000, 29999, False, preset, program)
    lender = donor_job.Donor(task, PaperMunge())
    try:
        yield lender
    finally:
        await lender.close()
