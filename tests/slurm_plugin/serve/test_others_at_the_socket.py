"""Peers that are neither root nor the engine's own user: the page's process, SlurmUser's group."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from slurm_plugin.serve.server import MAX_CONNECTIONS, MAX_OTHERS, LineAnswer, LineServer

REFUSED = b"error id=0 message="


@asynccontextmanager
async def serving(path: Path, own_uids: set[int] | None = None) -> AsyncIterator[list[bytes]]:
    """The lines that the engine heard."""
    heard: list[bytes] = []

    def answer(line: bytes) -> LineAnswer:
        heard.append(line)
        return LineAnswer(b"ok id=1\n")

    server = LineServer(path, answer)
    server.own_uids = server.own_uids if own_uids is None else own_uids
    await server.start()
    try:
        yield heard
    finally:
        await server.stop()


async def said(path: Path, data: bytes, count: int = 99) -> list[bytes]:
    """So many replies, or all until the engine hangs up."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(data)
    async with asyncio.timeout(20):
        replies = []
        while len(replies) < count and (line := await reader.readline()):
            replies.append(line)
    writer.close()
    return replies


@pytest.mark.parametrize(
    "line",
    [b"reload id=1", b"started job=7", b"ended job=7", b"submit id=1", b"place id=1",
     b"nodes id=1", b"statusreload id=1", b"", b" status id=1"],
)  # fmt: skip
async def test_another_user_changes_nothing(tmp_path, line):
    """Whatever else they sent before or after it is heard no more than that."""
    path = tmp_path / "s"
    async with serving(path, own_uids=set()) as heard:
        replies = await said(path, b"status id=1\n" + line + b"\nstatus id=1\n")
        assert heard == [b"status id=1"]
        ok, refusal = replies
        assert ok == b"ok id=1\n"
        assert refusal.startswith(REFUSED)
        assert f"uid%20{os.geteuid()}".encode() in refusal


async def test_another_user_is_told_how_the_engine_is(tmp_path):
    path = tmp_path / "s"
    async with serving(path, own_uids=set()) as heard:
        lines = [b"ping id=1", b"status id=1", b"ping", b"status id=2"]
        assert await said(path, b"\n".join(lines) + b"\n", 4) == [b"ok id=1\n"] * 4
        assert heard == lines


async def test_our_own_user_says_everything(tmp_path):
    path = tmp_path / "s"
    async with serving(path) as heard:
        await said(path, b"reload id=1\nended job=7\n", 2)
        assert heard == [b"reload id=1", b"ended job=7"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can come as somebody else")
async def test_the_kernel_says_who_comes_and_others_leave_room(tmp_path, monkeypatch):
    """Whoever takes over the page's process cannot take all places of slurmctld's."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    async with serving(Path("s")) as heard:
        Path("s").chmod(0o666)
        others = []
        for _ in range(3 * MAX_OTHERS):
            one = socket.socket(socket.AF_UNIX)
            os.seteuid(4711)
            try:
                one.connect("s")
            finally:
                os.seteuid(0)
            one.setblocking(False)
            others.append(one)
        loop = asyncio.get_running_loop()
        assert MAX_CONNECTIONS > 2 * MAX_OTHERS
        for one in others[MAX_OTHERS:]:
            assert (await loop.sock_recv(one, 999)).startswith(REFUSED)
        others[0].send(b"reload id=1\n")
        refusal = await loop.sock_recv(others[0], 999)
        assert b"uid%204711" in refusal
        assert await said(Path("s"), b"reload id=1\n", 1) == [b"ok id=1\n"]
        assert heard == [b"reload id=1"]
        for one in others:
            one.close()
