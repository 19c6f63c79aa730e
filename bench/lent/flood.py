"""flood: the job's own connections while another user of the donor's node floods one of its ports.

The real donor before a server with gputopo-wire.so; the flood comes over loopback, and the job from
a network namespace as from another node. Each admission goes through both ends to the server, which
answers one call. Only root can be another user for once; elsewhere nothing is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

from bench.lent.ends import HOST, SUBJECT, Believing
from bench.lent.load import CALL_BYTES
from bench.lent.wire import built
from bench.measure import Figure, at_most, conditions
from slurm_plugin.config import presets
from slurm_plugin.errors import PluginError
from slurm_plugin.node.remote.donor import Donor, DonorTask
from slurm_plugin.node.remote.door import Tools
from slurm_plugin.node.remote.relay import DonorAddress, JobEnd

ROOT = Path(__file__).resolve().parents[2]
#: Whose the flood is, of how many processes; how many admissions are tried, and for how long.
UID, PROCESSES, TRIES, MOST_S = 65534, 6, 20, 20.0
#: Within so many seconds the product promises a connection.
PROMISED_S = 10.0
#: The donor's address and the job's, on the two ends of a cable that this makes.
NEAR, FAR = "169.254.77.1", "169.254.77.2"
CABLE = ("gputopo0", "gputopo1")


async def lend(program: str) -> None:
    """A donor, until this process is killed; prints the port of its end and that of its server."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    words = (sys.executable, "-m", "bench.lent.load", "serve", "{bind}", "{port}")
    preset = replace(presets.load("echo"), server=words)
    parent, job_id = map(int, SUBJECT.split("/"))
    donor = Donor(DonorTask(parent, job_id, 1, 20000, 29999, False, preset, program), Believing())
    print(await donor.open(), donor._server_port, flush=True)
    await donor.server_ended()


async def borrow(port: int, tries: int, most_s: float) -> None:
    """Once a line came, admissions one after the other; prints [seconds, was it admitted]."""
    print("ready", flush=True)
    sys.stdin.readline()
    end, ends = JobEnd(DonorAddress(NEAR, port, SUBJECT), Believing(), Tools(Path())), time.time()
    tried: list[tuple[float, bool]] = []
    while len(tried) < tries and time.time() < ends + most_s:
        began = time.monotonic()
        is_in = await _is_admitted(end)
        tried.append((time.monotonic() - began, is_in))
    print(json.dumps(tried))


async def _is_admitted(end: JobEnd) -> bool:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(PROMISED_S):
            with closing(await end.reach()) as sock:
                await loop.sock_sendall(sock, b"c" + bytes(CALL_BYTES))
                return bool(await loop.sock_recv(sock, CALL_BYTES))
    except (OSError, TimeoutError, PluginError):
        return False


@contextmanager
def running(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A program, and the first line that it prints."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()


@contextmanager
def flooded(port: int, processes: int) -> Iterator[None]:
    """A block in which another user floods this port of loopback."""
    words = ("-m", "bench.lent.load", "flood", HOST, str(port), str(UID))
    with ExitStack() as floods:
        for _ in range(processes):
            floods.enter_context(running(sys.executable, *words))
        yield


def wire_up(pid: int) -> None:
    """A cable between this host and the network namespace of a process. CalledProcessError."""
    near, far = CABLE
    inside = ["nsenter", f"--net=/proc/{pid}/ns/net"]
    for words in (
        ["ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", str(pid)],
        ["ip", "addr", "add", f"{NEAR}/30", "dev", near],
        ["ip", "link", "set", near, "up"],
        [*inside, "ip", "addr", "add", f"{FAR}/30", "dev", far],
        [*inside, "ip", "link", "set", far, "up"],
    ):
        subprocess.run(words, check=True, capture_output=True)


def tried_under(
    flooded_port: int, port: int, processes: int, tries: int, most_s: float
) -> list[tuple[float, bool]]:
    """Admissions by the donor's end at `port` while `flooded_port` is flooded: seconds, success."""
    words = ("-m", "bench.lent.flood", "borrow", str(port), str(tries), str(most_s))
    with running("unshare", "--net", sys.executable, *words) as (job, _):
        wire_up(job.pid)
        with flooded(flooded_port, processes):
            told, _ = job.communicate("go\n")
        return [(took, is_in) for took, is_in in json.loads(told)]


@contextmanager
def lent(folder: Path) -> Iterator[list[int]]:
    """A donor in a process of its own; the ports of its end and of its server."""
    program = str(folder / "gputopo-node")
    with running(sys.executable, "-m", "bench.lent.flood", "lend", program) as (_, told):
        yield [int(word) for word in told.split()]


def run() -> Iterator[Figure]:
    """Admissions that failed under a flood of each of the two ports."""
    if os.geteuid():
        print("flood: only root can be another user for once; nothing is measured", file=sys.stderr)
        return
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="gputopo-wire-")))
        ports = held.enter_context(lent(built(folder).folder))
        for name, port in zip(("donor's end", "server's own port"), ports, strict=True):
            tried = tried_under(port, ports[0], PROCESSES, TRIES, MOST_S)
            took = sorted(seconds for seconds, _ in tried)
            detail = {
                "tried": len(tried),
                "slowest_s": round(took[-1], 3),
                "median_s": round(took[len(took) // 2], 3),
                "processes": PROCESSES,
                **conditions(),
            }
            failed = sum(not is_in for _, is_in in tried)
            yield at_most(f"flood.{name}", failed, "admissions failed", 0, detail=detail)


def main(word: str, rest: Sequence[str]) -> None:
    """One of the two sides."""
    if word == "lend":
        asyncio.run(lend(rest[0]))
    else:
        asyncio.run(borrow(int(rest[0]), int(rest[1]), float(rest[2])))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
