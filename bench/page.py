"""The page under one hostile user: how long another one waits, and what it costs the process.

A page of its own process on loopback, beside a Slurm that is played, with a log of four files of
100 MB. The clients work on the same cores.
"""

from __future__ import annotations

import resource
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.measure import Figure, at_most, conditions, quantile

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "slurm_plugin"))

from slurm_plugin.node.remote.sockets import owner_of  # noqa: E402
from tests.slurm_plugin.page_process import ALICE, BOB, PageProcess, page, write_log  # noqa: E402

FILES, EACH_MB, HOSTILE, TIMES = 4, 100, 400, 10
ALICES, BOBS = 8, 7
ALONE_S, BESIDE_S, END_S, OWNER_MS = 1.0, 2.0, 2.0, 2.0
#: Bars of the process: MiB, and what one user may keep open beside what it needs itself.
MEMORY_MB, SHARE = 300, 64
#: A user's waiting jobs, and for how long so many clients of that user take nothing.
WAITING, SLOW_S = 10_000, 60
#: Connections of this host while it is asked whose one of them is.
CONNECTIONS = 25_000
HERE = "127.0.0.1"


def run() -> Iterator[Figure]:
    """How long alice waits, what is open, how it ends; then whose a connection is."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_log(folder, FILES, EACH_MB, {ALICES: 2000 + ALICE, BOBS: 2000 + BOB})
        with page(folder) as running:
            yield from _figures(running)
    yield from _slow_readers()
    yield from _owners()


def _slow_readers() -> Iterator[Figure]:
    """The process's memory where as many of a user's clients as are let in take nothing.

    That user's waiting jobs have long comments, all of which change at each reading.
    """
    with tempfile.TemporaryDirectory() as name, page(Path(name), waiting=WAITING) as running:
        with running.connected(BOB, SHARE - 1, "/api/events", takes=4096):
            began = time.monotonic()
            while time.monotonic() < began + SLOW_S:
                status, text, _ = running.asked("/api/state", BOB)
                assert status == 200
                time.sleep(1)
        yield at_most(
            f"memory beside {SHARE - 1} readers who take nothing, {WAITING:,} jobs",
            running.memory_mb(),
            "MiB",
            MEMORY_MB,
            detail={"state_mb": round(len(text) / 1e6, 2), "seconds": SLOW_S, **conditions()},
        )


def _figures(running: PageProcess) -> Iterator[Figure]:
    _, _, took_s = running.asked(f"/api/job/{ALICES}", ALICE)
    detail = {"log_mb": FILES * EACH_MB, **conditions()}
    yield Figure("first job page after the start, log unread", round(took_s, 3), "s", detail=detail)
    yield from _waits(running, "alone", ALONE_S)
    beside = f"beside {HOSTILE} requests of another user"
    yield from _waits(running, f"{beside}, connected", BESIDE_S, HOSTILE)
    yield from _waits(running, f"{beside}, hung up", BESIDE_S, HOSTILE, hangs_up=True)
    before = running.connections()
    with running.connected(BOB, 1500, f"/api/job/{BOBS}"):
        running.asked("/api/state", ALICE)
        name = "connections of a user who made 1,500"
        yield at_most(name, running.connections() - before, "", SHARE)
    yield at_most("memory at most", running.memory_mb(), "MiB", MEMORY_MB)
    with running.connected(BOB, HOSTILE, f"/api/job/{BOBS}"):
        yield at_most("SIGTERM to the end, questions waiting", running.ended_s(), "s", END_S)


def _waits(
    running: PageProcess, words: str, bar_s: float, hostile: int = 0, hangs_up: bool = False
) -> Iterator[Figure]:
    """The longest that alice waits, each time beside so many requests that were sent before."""
    waits, nothing, worked = [], [], []
    for _ in range(TIMES):
        # What this machine makes of a question to which there is no answer.
        nothing.append(running.asked("/nothing", ALICE)[2])
        before = running.processor_s()
        with running.connected(BOB, hostile, f"/api/job/{BOBS}") as clients:
            if hangs_up:
                clients.close()
            status, _, took_s = running.asked(f"/api/job/{ALICES}", ALICE)
            worked.append(running.processor_s() - before)
        assert status == 200
        waits.append(took_s)
    beside = (
        f"median {quantile(waits, 0.5):.3f} s; a question for nothing, alone:"
        f" worst {max(nothing):.3f}, median {quantile(nothing, 0.5):.3f} s"
    )
    detail = {
        "log_mb": FILES * EACH_MB,
        # The hostile requests' own included.
        "processor_s_worst": round(max(worked), 3),
        "processor_s_median": round(quantile(worked, 0.5), 3),
        **conditions(),
    }
    name = f"job page {words}, worst of {TIMES}"
    yield at_most(name, max(waits), "s", bar_s, compared_with=beside, detail=detail)


def _owners() -> Iterator[Figure]:
    """Whose a connection is, among many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    count = min(CONNECTIONS, most // 2 - 500)
    with ExitStack() as ends:
        listener = ends.enter_context(socket.create_server((HERE, 0), backlog=1024))
        for number in range(count):
            source = (f"127.0.{number // 10_000 + 1}.1", 0)
            client = socket.create_connection(listener.getsockname(), source_address=source)
            ends.enter_context(client)
            ends.enter_context(listener.accept()[0])
        asked = client.getsockname(), client.getpeername()
        times = []
        for _ in range(1000):
            began = time.thread_time()
            assert owner_of(*asked) is not None
            times.append((time.thread_time() - began) * 1e3)
        yield at_most(
            "whose a connection is, worst of 1,000, processor time",
            max(times),
            "ms",
            OWNER_MS,
            compared_with=f"median {quantile(times, 0.5):.3f}",
            detail={"connections": count, **conditions()},
        )
