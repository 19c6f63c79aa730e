"""The process: where it listens, for whom, and how it ends."""

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurm_plugin.cli import cli
from slurm_plugin.errors import PluginError, RemoteError
from slurm_plugin.node.remote import sockets
from slurm_plugin.tell.web import demo, run
from slurm_plugin.tell.web.identity import Identities

ROOT = Path(__file__).parents[4]


def web(*options: str) -> subprocess.Popen[str]:
    line = "import sys; from slurm_plugin.cli import cli; cli(['web', *sys.argv[1:]])"
    return subprocess.Popen(
        [sys.executable, "-c", line, *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        stderr=subprocess.PIPE,
        text=True,
    )


def asked(path: Path, target: str, *headers: str) -> tuple[int, bytes]:
    """Status and body of one request over the Unix socket."""
    lines = [f"GET {target} HTTP/1.1", "Host: gpus.example", "Connection: close", *headers, "", ""]
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall("\r\n".join(lines).encode())
        with client.makefile("rb") as stream:
            head, _, body = stream.read().partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def test_behind_a_proxy_on_a_unix_socket(tmp_path):
    """Nobody but the owner and the group may connect, and the proxy's header says who looks."""
    path = tmp_path / "web.sock"
    process = web("--demo", "--listen", f"unix:{path}", "--user-header", "X-User")
    try:
        assert process.stderr is not None
        assert str(path) in process.stderr.readline()
        while not path.exists() or stat.S_IMODE(path.stat().st_mode) != 0o660:
            assert process.poll() is None
            time.sleep(0.02)
        assert asked(path, "/")[0] == 403
        assert asked(path, "/", "X-User: nobody")[0] == 200
        assert asked(path, "/", "X-User: nobody", "X-User: root")[0] == 403
        status, body = asked(path, "/api/state", "X-User: root")
        assert status == 200
        assert json.loads(body)["jobs"]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--listen", "0.0.0.0:0"], "other hosts"),
        (["--listen", "127.0.0.1:0", "--proxy", "127.0.0.1"], "every user of this host"),
        (["--listen", "nowhere"], "expected unix:/PATH or ADDRESS:PORT"),
        (["--operator", "nosuchuser"], "nosuchuser"),
        (["--prometheus", "prom:9090"], "expected http://HOST:PORT"),
        (["--listen", "127.0.0.1:1", "--listen", "192.0.2.1:1", "--user-header", "X", "--proxy",
          "192.0.2.2"], "--listen"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_one_line(options, says):
    done = CliRunner().invoke(cli, ["web", "--demo", *options])
    assert done.exit_code == 2
    [line] = done.output.splitlines()
    assert says in line


def refused(near, far):
    raise RemoteError("the kernel's sock_diag: Operation not permitted")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (refused, "the kernel's sock_diag: Operation not permitted; without it a reverse proxy"),
        (lambda near, far: None, "load its module tcp_diag; without it a reverse proxy"),
    ],
)
def test_where_the_kernel_tells_nobody_apart_the_page_does_not_start(monkeypatch, answer, says):
    """Users of this host could not be told who they are, whatever header is believed elsewhere."""
    monkeypatch.setattr(sockets, "_ask", answer)
    for who in (Identities(), Identities(header="X-User")):
        with pytest.raises(PluginError) as error:
            asyncio.run(run.serve(demo.sources(), who, [run.address_in("127.0.0.1:0")]))
        assert str(error.value).startswith("--listen 127.0.0.1:0: the kernel")
        assert says in str(error.value)


def test_the_recorded_day_is_shown_to_every_user_of_the_host(monkeypatch):
    """It is nobody's, and shown where the kernel tells nobody apart, too."""
    monkeypatch.setattr(sockets, "_ask", refused)
    served = []

    async def serve(sources, who, addresses, group, prometheus):
        assert prometheus == ""
        run._check_kernel(addresses, who)
        served.append(who)

    monkeypatch.setattr(run, "serve", serve)
    done = CliRunner().invoke(cli, ["web", "--demo"])
    assert done.exit_code == 0, done.output
    [who] = served
    assert who.owner(("127.0.0.1", 1), ("127.0.0.1", 2)) in who.operators


def test_the_prometheus_that_is_named_is_the_one_asked(monkeypatch):
    served = []

    async def serve(sources, who, addresses, group, prometheus):
        served.append(prometheus)

    monkeypatch.setattr(run, "serve", serve)
    done = CliRunner().invoke(cli, ["web", "--demo", "--prometheus", "http://prom:9090/"])
    assert done.exit_code == 0, done.output
    assert served == ["http://prom:9090"]


def test_a_proxy_that_is_believed_without_a_secret_is_warned_of(caplog, monkeypatch):
    """A site may have had one before there were secrets."""

    async def serve(*_: object) -> None:
        pass

    monkeypatch.setattr(run, "serve", serve)
    for secret, lines in (("0123456789abcdef", 0), ("", 1)):
        settings = {"GPUTOPO_WEB_SECRET": secret}
        done = CliRunner().invoke(cli, ["web", "--demo", "--proxy", "192.0.2.1"], env=settings)
        assert done.exit_code == 0, done.output
        assert caplog.text.count("set GPUTOPO_WEB_SECRET") == lines


def test_requests_sent_on_and_on_over_one_connection_are_not_kept():
    """Before 3.14 aiohttp keeps them all, however many come before an answer."""
    process = web("--demo", "--listen", "127.0.0.1:0")
    try:
        assert process.stderr is not None
        port = int(process.stderr.readline().rpartition(":")[2].strip("/\n"))
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            one = b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
            client.sendall(one)
            assert client.recv(99).startswith(b"HTTP/1.1 200 OK")
            with pytest.raises(ConnectionError):
                client.sendall(one * 2_000_000)
        lines = [b"GET / HTTP/1.1", b"Host: localhost", b"", b""]
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(b"\r\n".join(lines) * 3)
            with client.makefile("rb") as stream:
                assert stream.read().count(b"HTTP/1.1 200 OK") == 1
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
