"""Users that are neither root nor the engine's own: SlurmUser's group, the page's process."""

import asyncio
import logging
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from slurm_plugin.base import client
from slurm_plugin.cli.site.status import status
from slurm_plugin.errors import EngineDown
from slurm_plugin.serve.server import LineAnswer, LineServer

REFUSED = b"error id=0 message=uid%20"
MEMBER, GROUP = 4711, 4700

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can come as somebody else")


@pytest.fixture
def path() -> Iterator[Path]:
    """In a folder that everybody may enter, as /run/gputopo is; pytest's own are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "s"


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[list[bytes]]:
    """The lines that the engine heard."""
    heard: list[bytes] = []

    def answer(line: bytes) -> LineAnswer:
        heard.append(line)
        return LineAnswer(b"ok id=1\n")

    server = LineServer(path, answer)
    await server.start()
    try:
        yield heard
    finally:
        await server.stop()


@contextmanager
def being(uid: int, gid: int) -> Iterator[None]:
    """As this user, for os.access, too, which looks at the real one."""
    groups = os.getgroups()
    os.setgroups([])
    os.setresgid(gid, gid, 0)
    os.setresuid(uid, uid, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)


def connected(path: Path) -> socket.socket:
    one = socket.socket(socket.AF_UNIX)
    try:
        with being(MEMBER, GROUP):
            one.connect(str(path))
    except OSError:
        one.close()
        raise
    one.setblocking(False)
    return one


async def test_the_group_takes_no_place_in_the_queue_of_slurmctld(path):
    """The kernel refuses its members: the engine, and who waits for it, never notice."""
    async with serving(path) as heard:
        os.chown(path, -1, GROUP)
        for _ in range(300):
            with pytest.raises(PermissionError):
                connected(path)
        with socket.socket(socket.AF_UNIX) as slurmctld:
            slurmctld.setblocking(False)
            slurmctld.connect(str(path))
            slurmctld.send(b"place id=1\n")
            async with asyncio.timeout(10):
                assert await asyncio.get_running_loop().sock_recv(slurmctld, 99) == b"ok id=1\n"
        assert heard == [b"place id=1"]


async def test_where_the_mode_was_changed_others_are_not_heard(path, caplog):
    caplog.set_level(logging.WARNING)
    loop = asyncio.get_running_loop()
    async with serving(path) as heard:
        path.chmod(0o666)
        for _ in range(40):
            with connected(path) as other:
                other.send(b"status id=1\nreload id=1\n")
                async with asyncio.timeout(10):
                    assert (await loop.sock_recv(other, 999)).startswith(REFUSED + b"4711")
        assert heard == []
    assert len(caplog.messages) == 6  # the first, second, fourth, ... 32nd
    assert f"chmod 0600 {path}" in caplog.messages[0]


async def test_the_group_reads_what_the_engine_wrote_and_nobody_else_does(path):
    async with serving(path):
        with being(MEMBER, GROUP), pytest.raises(EngineDown, match="engine is not running"):
            client.status(path)
        client.write_status(path, {"uptime_s": 7})
        os.chown(client.status_file(path), -1, GROUP)
        with being(MEMBER, GROUP):
            assert client.status(path) == {"uptime_s": 7}
            # The kernel lets the command see that the socket is there, and not read it.
            option = next(one for one in status.params if one.name == "socket_path")
            assert option.type.convert(str(path), option, None) == path
            with pytest.raises(EngineDown, match="permission denied; run this as root"):
                client.ask(path, b"reload id=1\n")
        with (
            being(MEMBER, MEMBER),
            pytest.raises(EngineDown, match="permission denied; run this as root"),
        ):
            client.status(path)


@pytest.mark.parametrize(
    ("age_s", "rest", "says"),
    [
        (10.1, ', "status": {}}', "not written for 10 s"),
        (-60, ', "status": {}}', "not written for 10 s"),  # before the host started anew
        (0, ', "st', "of this release"),
        (0, "}", "of this release"),
        (0, ', "status": []}', "of this release"),
    ],
)
async def test_what_an_engine_that_is_gone_wrote_is_no_status(path, age_s, rest, says):
    async with serving(path):
        client.status_file(path).write_text(f'{{"at_s": {time.monotonic() - age_s}{rest}')
        client.status_file(path).chmod(0o644)
        with being(MEMBER, GROUP), pytest.raises(EngineDown, match=says):
            client.status(path)
