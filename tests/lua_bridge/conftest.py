"""A slurmctld made of a real Lua 5.1 with LuaSocket, and an engine that misbehaves on demand."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import pytest

HERE = Path(__file__).parent
BRIDGE = HERE.parents[1] / "lua_bridge"


@dataclass
class HookResult:
    """What one hook call did: return code, what the user and the log saw, the job after it."""

    rc: int
    elapsed_s: float
    job: dict[str, str]
    env: dict[str, str]
    user: list[str]
    log: list[str]
    reads: list[str]
    writes: list[str]


class LuaSlurmctld:
    """One long-lived Lua 5.1 that loaded job_submit.lua, as slurmctld does."""

    def __init__(self, script: Path) -> None:
        env = {"PATH": "/usr/bin:/bin", "SLURM_CONF": str(script.parent / "slurm.conf")}
        self._process = subprocess.Popen(
            ["lua5.1", str(HERE / "slurmctld_stub.lua"), str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def command(self, line: str) -> list[tuple[str, str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        pairs = []
        for raw in self._process.stdout:
            if raw == ".\n":
                break
            key, _, value = raw.rstrip("\n").partition("=")
            pairs.append((key, unquote(value, errors="surrogateescape")))
        problems = [value for key, value in pairs if key == "crash"]
        assert not problems, problems
        return pairs

    def evaluate(self, lua: str) -> str:
        """Run a chunk of Lua; its (string) result."""
        return dict(self.command(f"return assert(loadstring({_literal(lua)}))()"))["result"]

    def submit(self, **fields: object) -> HookResult:
        """slurm_job_submit with these job_desc fields; env, parts, uid, poisoned are apart."""
        return self._hook("submit", {}, fields)

    def modify(self, record: dict[str, object], **fields: object) -> HookResult:
        """slurm_job_modify of a job with this record."""
        return self._hook("modify", dict(record), fields)

    def _hook(self, name: str, record: dict[str, object], fields: dict[str, object]) -> HookResult:
        options = {"env": {}, "parts": {"main": 1}, "uid": 1000, "poisoned": ""}
        apart = [fields.pop(option, default) for option, default in options.items()]
        for values in (fields, record):
            if "spank" in values:
                values["spank_job_env"] = dict(enumerate(values.pop("spank")))
        arguments = map(_literal, (name, fields, record, *apart))
        return _hook_result(self.command(f"hook({','.join(arguments)})"))


def _literal(value: object) -> str:
    """The value in Lua: one line of printable ASCII."""
    if isinstance(value, dict):
        return "{" + ",".join(f"[{_literal(k)}]={_literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, int):
        return str(value)
    text = value if isinstance(value, bytes) else str(value).encode()
    escaped = re.sub(rb"[^ !#-[\]-~]", lambda found: b"\\%03d" % found[0][0], text)
    return f'"{escaped.decode()}"'


def _hook_result(pairs: list[tuple[str, str]]) -> HookResult:
    def named(prefix: str) -> dict[str, str]:
        return {k[len(prefix) :]: v for k, v in pairs if k.startswith(prefix)}

    plain = dict(pairs)
    return HookResult(
        rc=int(plain["rc"]),
        elapsed_s=float(plain["elapsed_s"]),
        job=named("field."),
        env=named("env."),
        user=list(named("user.").values()),
        log=list(named("log.").values()),
        reads=plain["reads"].split(),
        writes=plain["writes"].split(),
    )


Behaviour = Callable[[socket.socket, str], None]


def reply_with(template: str) -> Behaviour:
    """Answer each request with the template, {id} filled in."""

    def behave(peer: socket.socket, request: str) -> None:
        request_id = int(re.search(r" id=(\d+)", request)[1])
        text = template.replace("{id}", str(request_id)).replace("{late}", str(request_id - 1))
        peer.sendall(text.encode("latin-1"))

    return behave


@dataclass
class FakeEngine:
    """A Unix socket server with one exchangeable behaviour; keeps what it was asked."""

    path: Path
    behaviour: Behaviour = field(default_factory=lambda: reply_with("pass id={id}\n"))
    requests: list[str] = field(default_factory=list)
    connections: int = 0
    _listener: socket.socket | None = None
    _peers: list[socket.socket] = field(default_factory=list)

    def start(self, backlog: int = 16, accepts: bool = True) -> None:
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(backlog)
        if accepts:
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def stop(self) -> None:
        """As a killed engine: every connection closed, the socket file left behind."""
        if self._listener is not None:
            # Wakes the accepting thread, which close() alone would not.
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for peer in self._peers:
            _shut(peer)
        self._peers.clear()

    def answers(self, template: str) -> None:
        self.behaviour = reply_with(template)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            self._peers.append(peer)
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        try:
            for raw in peer.makefile("rb"):
                request = raw.decode("latin-1").rstrip("\n")
                self.requests.append(request)
                self.behaviour(peer, request)
        except (OSError, ValueError):
            pass
        finally:
            _shut(peer)


def _shut(peer: socket.socket) -> None:
    with contextlib.suppress(OSError):
        peer.shutdown(socket.SHUT_RDWR)
    peer.close()


@pytest.fixture(autouse=True, scope="session")
def lua_is_installed() -> None:
    """Skips where there is none: not every system has Lua 5.1 at hand."""
    command = ["lua5.1", "-e", "require 'socket.unix'"]
    if not shutil.which("lua5.1") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no lua5.1 with LuaSocket here")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[FakeEngine]:
    """A running fake engine that answers pass until told otherwise."""
    fake = FakeEngine(tmp_path / "engine.sock")
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def deadline_ms() -> int:
    """How long the bridge waits: longer than a busy machine keeps an answer back."""
    return 1000


@pytest.fixture
def installed(tmp_path: Path, deadline_ms: int) -> Path:
    """A directory as /etc/slurm: the script, its modules, and the bridge's configuration."""
    etc = tmp_path / "etc"
    shutil.copytree(BRIDGE, etc, ignore=shutil.ignore_patterns("*.py", "py.typed", "__pycache__"))
    (etc / "gputopo-bridge.conf").write_text(
        f"socket = {tmp_path / 'engine.sock'}\ndeadline_ms = {deadline_ms}\n"
        f"locked_deadline_ms = {deadline_ms}\nbudget_ms = 1000\n"
        "retry_first_s = 0.2\nretry_longest_s = 0.4\n"
    )
    return etc


@pytest.fixture
def start_lua() -> Iterator[Callable[..., LuaSlurmctld]]:
    """Starts one: start_lua(script)."""
    started: list[LuaSlurmctld] = []

    def start(script: Path) -> LuaSlurmctld:
        started.append(LuaSlurmctld(script))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def lua(installed: Path, start_lua: Callable[..., LuaSlurmctld]) -> LuaSlurmctld:
    """A Lua 5.1 that loaded the installed script."""
    return start_lua(installed / "job_submit.lua")


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Wait until a condition holds, ten seconds at most."""

    def wait(condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < end, "condition did not come true in 10 s"
            time.sleep(0.01)

    return wait
