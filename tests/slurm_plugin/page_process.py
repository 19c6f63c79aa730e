"""The page as a process of its own on loopback, beside a Slurm that is played.

All clients are this test's own user; 127.0.0.N stands for the user with the uid 2000 + N.
"""

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import SO_RCVBUF, SOL_SOCKET, socket

import msgspec

from tests.processes import memory_mb

ROOT = Path(__file__).resolve().parents[2]
STARTED = (
    b'{"decision":"started","time":"2026-11-21T03:19:43.918+00:00","took_ms":0.0,"job":%d,'
    b'"array":0,"gpus":{"dgx1":[0,3]}}\n'
)
ALICE, BOB, CAROL = 1, 2, 3
#: Seconds within which whatever is waited for has surely happened.
SURELY_S = 60.0


class PageProcess:
    def __init__(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        self.process, self.port = process, port

    def asked(self, path: str, user: int, timeout_s: float = SURELY_S) -> tuple[int, bytes, float]:
        """Status, body and seconds of one question."""
        began = time.monotonic()
        source = (f"127.0.0.{user}", 0)
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout_s, source)
        try:
            client.request("GET", path)
            reply = client.getresponse()
            return reply.status, reply.read(), time.monotonic() - began
        finally:
            client.close()

    def connected(self, user: int, count: int, path: str = "", takes: int = 0) -> ExitStack:
        """So many connections of a user, each of which has asked for this where it is let in.

        `takes`: bytes that the kernel keeps for a client, none of which reads anything.
        """
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() if path else b""
        clients = ExitStack()
        for _ in range(count):
            try:
                client = clients.enter_context(socket())
                client.settimeout(10)
                if takes:
                    client.setsockopt(SOL_SOCKET, SO_RCVBUF, takes)
                client.bind((f"127.0.0.{user}", 0))
                client.connect(("127.0.0.1", self.port))
                client.sendall(request)
            except OSError:
                continue  # not let in: no less of an attack
        return clients

    def connections(self) -> int:
        """Descriptors of connections, the ones it listens with included."""
        found = 0
        for one in Path(f"/proc/{self.process.pid}/fd").iterdir():
            try:
                found += one.readlink().name.startswith("socket:")
            except FileNotFoundError:
                continue
        return found

    def memory_mb(self) -> float:
        """The most memory that it ever had."""
        return memory_mb(self.process.pid)

    def processor_s(self) -> float:
        """Seconds of processor time that it has used."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text()
        words = text.rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def ended_s(self) -> float:
        """Seconds that its end took once it was told to end."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(SURELY_S)
        return time.monotonic() - began


def write_log(folder: Path, files: int, each_mb: float, jobs: dict[int, int]) -> None:
    """A log of so many files of others' decisions, and a line for each of these jobs in each file.

    `jobs` says whose each one is.
    """
    sys.path.insert(0, str(ROOT / "tests" / "slurm_plugin"))
    from web_in_tests import RECORD

    number = 1000
    for file in reversed(range(files)):
        name = f"decisions.jsonl.{file}" if file else "decisions.jsonl"
        with (folder / name).open("wb") as log:
            for job, uid in jobs.items():
                log.write(msgspec.json.encode({**RECORD, "job": job, "uid": uid}) + b"\n")
            while log.tell() < each_mb * (1 << 20):
                number += 1
                log.write(msgspec.json.encode({**RECORD, "job": number}) + b"\n")
                log.write(STARTED % number)


@contextmanager
def page(folder: Path, **settings: object) -> Iterator[PageProcess]:
    """The page of the log in this folder until the block ends.

    Settings: `stuck` seconds that every question for a job hangs in its thread, `most`, so many
    connections in all, and `waiting`, so many jobs of bob's that wait, whose comments of 1,000
    characters change at each reading.
    """
    with (folder / "page.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, __file__, str(folder), json.dumps(settings)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            stderr=log,
        )
    try:
        yield PageProcess(process, _port(folder / "page.log", process))
    finally:
        process.kill()
        process.wait()


def _port(log: Path, process: "subprocess.Popen[bytes]") -> int:
    until = time.monotonic() + SURELY_S
    while "the page is at" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.02)
    return int(log.read_text().partition("127.0.0.1:")[2].partition("/")[0])


def main(folder: Path, stuck: float = 0.0, most: int = 0, waiting: int = 0) -> None:
    import logging
    from dataclasses import dataclass, replace

    import web_in_tests
    from web_in_tests import PlayedSlurm, Site

    from slurm_plugin.node.remote.sockets import owner_of
    from slurm_plugin.slurm.interface import QueuedJob
    from slurm_plugin.tell.web.clients import guard
    from slurm_plugin.tell.web.identity import Identities
    from slurm_plugin.tell.web.run import Address, serve

    def owner(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
        is_known = owner_of(peer, own) is not None
        return 2000 + int(peer[0].rpartition(".")[2]) if is_known else None

    def hanging(*asked: object) -> list[object]:
        time.sleep(stuck)
        return []

    @dataclass
    class Busy(PlayedSlurm):
        def queue(self) -> list[QueuedJob]:
            comment = f"{self.asked:08d}" + 992 * "\U0001f4a9"
            wide = {"tres_per_node": "gres/gpu:8", "comment": comment}
            return [
                *super().queue(),
                *(web_in_tests.job(100 + i, 2002, **wide) for i in range(waiting)),
            ]

    logging.basicConfig(level=logging.INFO)
    guard.MAX_CONNECTIONS = most or guard.MAX_CONNECTIONS
    usual = web_in_tests.played()
    sources = Site(folder, Busy(usual.jobs, usual.nodes_)).sources
    if stuck:
        sources = replace(sources, records_of=hanging)
    asyncio.run(serve(sources, Identities(owner=owner), [Address(host="127.0.0.1", port=0)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), **json.loads(sys.argv[2]))
