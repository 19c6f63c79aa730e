"""The containers of a cluster as hosts: commands, files, and what may happen to a host."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from platform import machine
from tempfile import TemporaryDirectory
from typing import Any

import docker
from docker.errors import APIError

from slurm_cluster.shells import Shells

LINK = Path(__file__).parent / "docker" / "link.py"
#: Seconds until something is asked again: each time a quarter longer, as asking is a process.
POLL_S, MOST_POLL_S = 0.1, 0.3
#: Beyond a command's own time limit, until a host counts as one that hangs.
GRACE_S = 20.0
#: For how long a host is asked to stand still.
PAUSE_S = 30.0
#: Tells how the cluster stands in which this thread ran a command last.
_standing: ContextVar[Callable[[], str]] = ContextVar("standing", default=str)
_VERSION = "import sys; print('{}.{}'.format(*sys.version_info))"
#: Of a project's folder, what its wheel is not made of.
_NOT_COPIED = (".git", ".venv", "venv", "build", "__pycache__", ".*_cache")
_MANYLINUX = ("2014", "_2_27", "_2_28")


class ClusterError(Exception):
    """A command failed or a state was not reached; the message has the command and its output."""


class NoEngineError(ClusterError):
    """No container engine answers and none could be started."""


@dataclass(frozen=True)
class CommandResult:
    """What a command in a container left."""

    code: int
    out: str
    err: str


def pauses() -> Iterator[float]:
    """The seconds between one poll and the next, without end."""
    pause_s = POLL_S
    while True:
        yield pause_s
        pause_s = min(1.25 * pause_s, MOST_POLL_S)


def until(
    condition: Callable[[], object], what: str | Callable[[], str], timeout_s: float = 20
) -> None:
    """Polls until the condition holds; ClusterError says what did not, and how the cluster stands.

    `what` may be a function, which is called for the error alone.
    """
    deadline, wait = time.monotonic() + timeout_s, pauses()
    while not condition():
        if time.monotonic() > deadline:
            missing = what if isinstance(what, str) else what()
            raise ClusterError(f"not within {timeout_s:g} s: {missing}\n{_standing.get()()}")
        time.sleep(next(wait))


class Hosts:
    """The hosts of one compose project, by name: the controller `ctl` and the nodes."""

    def __init__(self, project: str) -> None:
        """Of a project that runs."""
        self.project = project
        self._docker = docker.from_env()
        self._containers: dict[str, Any] = {}
        self._shells = Shells(lambda host: str(self.container(host).id))
        #: Whether nothing was run in it since the last reset.
        self.is_fresh = False

    def container(self, host: str) -> Any:
        """The docker SDK's container of a host."""
        if host not in self._containers:
            labels = [
                f"com.docker.compose.project={self.project}",
                f"com.docker.compose.service={host}",
            ]
            containers = self._docker.containers.list(all=True, filters={"label": labels})
            if not containers:
                raise ClusterError(f"no container of {host} in project {self.project}")
            self._containers[host] = containers[0]
        return self._containers[host]

    def run(
        self,
        host: str,
        command: str | Sequence[str],
        *,
        user: str = "root",
        check: bool = True,
        timeout_s: float = 60,
        env: dict[str, str] | None = None,
    ) -> CommandResult:
        """Runs a shell line (str) or an argument list in a host.

        ClusterError on a non-zero exit when `check`, and where the host hangs: no answer within
        GRACE_S after `timeout_s`, by which the command itself is ended.
        """
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        self.is_fresh = False
        _standing.set(self.standing)
        home = "/root" if user == "root" else f"/home/{user}"
        limited, environ = ["timeout", str(timeout_s), *argv], {"HOME": home, "USER": user}
        try:
            outcome = self._shells.run(
                host, limited, user, home, environ | (env or {}), timeout_s + GRACE_S
            )
        except TimeoutError as error:
            raise ClusterError(
                f"{user}@{host}: {shlex.join(argv)}: no answer within {timeout_s + GRACE_S:g} s;"
                " the container hangs (is it paused?), or the command ignores its end"
            ) from error
        result = CommandResult(*outcome)
        if check and result.code:
            raise ClusterError(
                f"{user}@{host}: {shlex.join(argv)} exited {result.code}:\n{result.out}{result.err}"
            )
        return result

    def standing(self) -> str:
        """Jobs, nodes, the engine's view, for the message of a wait that failed; never an error."""
        try:
            return self.run("ctl", ["clusterctl", "standing"], check=False, timeout_s=30).out
        except Exception as error:
            return f"how things stand cannot be read: {error}"

    @contextmanager
    def temporarily(self, do: str, undo: str, *, host: str = "ctl") -> Iterator[None]:
        """A block after one shell line in a host, and before another that undoes it."""
        self.run(host, do)
        try:
            yield
        finally:
            self.run(host, undo)

    # -- files --------------------------------------------------------------

    def put(self, host: str, path: str, text: str, *, user: str = "root") -> None:
        """Writes a file of at most 100 kB; its readers see the old or the new one, never half.

        ClusterError where the user cannot write it.
        """
        line = 'printf %s "$1" >"$2.new" && mv "$2.new" "$2"'
        self.run(host, ["sh", "-c", line, "sh", text, path], user=user)

    def put_folder(self, host: str, path: str, source: Path, *, user: str = "root") -> None:
        """Copies a folder of this machine into a new or existing folder of a host."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(source, ".")
        self.run(host, ["mkdir", "-p", path])
        command = ["docker", "exec", "-i", self.container(host).id, "tar", "-C", path, "-x"]
        done = subprocess.run(command, input=packed.getvalue(), capture_output=True, check=False)
        if done.returncode:
            raise ClusterError(f"{host}:{path}: {done.stderr.decode(errors='replace').strip()}")
        self.run(host, ["chown", "-R", f"{user}:", path])

    def read(self, host: str, path: str, *, timeout_s: float = 0) -> str:
        """The text of a file that is there within `timeout_s`; ClusterError where it is not."""
        there = ["test", "-s", path]
        if timeout_s:
            until(lambda: not self.run(host, there, check=False).code, path, timeout_s)
        return self.run(host, ["cat", path]).out

    def install(self, *requirements: str, user: str = "alice") -> str:
        """Python packages for a user of all hosts that run Python; the Python to call.

        Requirements as pip knows them, or folders of this machine with a project. They are
        fetched as wheels here, since hosts reach no package index, into ~/venv there.
        ClusterError with pip's words.
        """
        version = self.run("ctl", ["python3", "-c", _VERSION]).out.strip()
        home = f"/home/{user}"
        with TemporaryDirectory() as folder:
            for at, project in enumerate(filter(os.path.isdir, requirements)):
                # pip leaves a folder build/ in what it is given.
                copy = shutil.copytree(
                    project, f"{folder}/{at}", ignore=shutil.ignore_patterns(*_NOT_COPIED)
                )
                _pip("wheel", "--no-deps", "-w", folder, copy)
                shutil.rmtree(copy)
            own = [str(path) for path in Path(folder).iterdir()]
            named = [one for one in requirements if not os.path.isdir(one)]
            platforms = [f"--platform=manylinux{abi}_{machine()}" for abi in _MANYLINUX]
            of_host = ["--only-binary=:all:", f"--python-version={version}", *platforms]
            _pip("download", *of_host, "-d", folder, *own, *named)
            self.run("ctl", ["rm", "-rf", f"{home}/wheels"])
            self.put_folder("ctl", f"{home}/wheels", Path(folder), user=user)
        line = (
            f"python3 -m venv {home}/venv && "
            f"{home}/venv/bin/pip install -q --no-index --no-deps {home}/wheels/*.whl"
        )
        self.run("ctl", line, user=user, timeout_s=300)
        return f"{home}/venv/bin/python"

    # -- what may happen to a host ------------------------------------------

    @contextmanager
    def disconnected(self, *hosts: str) -> Iterator[None]:
        """No packet reaches these hosts or leaves them; their processes go on, with addresses."""
        for host in hosts:
            self._link(host, "down")
        try:
            yield
        finally:
            for host in hosts:
                self._link(host, "up")

    def _link(self, host: str, state: str) -> None:
        """Puts a host's network link up or down, from a container that lives for that alone."""
        container = self.container(host)
        self._docker.containers.run(
            container.image.id,
            ["-c", LINK.read_text(encoding="utf-8"), state],
            entrypoint="python3",
            network_mode=f"container:{container.id}",
            cap_add=["NET_ADMIN"],
            remove=True,
        )

    @contextmanager
    def paused(self, *hosts: str) -> Iterator[None]:
        """Every process of these hosts stands still; the hosts answer no one, and lose nothing."""
        for host in hosts:
            self._pause(host)
        try:
            yield
        finally:
            for host in hosts:
                self.container(host).unpause()

    def _pause(self, host: str) -> None:
        """Pauses the host; on a busy machine its processes do not all stand still at once."""
        end = time.monotonic() + PAUSE_S
        while True:
            try:
                self.container(host).pause()
                return
            except APIError as error:
                if "unable to freeze" not in str(error) or time.monotonic() > end:
                    raise
            time.sleep(0.5)

    @contextmanager
    def killed(self, host: str) -> Iterator[None]:
        """The host is gone with all that ran there, as without power; it boots at the end."""
        container = self.container(host)
        container.kill()
        try:
            yield
        finally:
            container.start()


def _pip(*args: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"pip {shlex.join(args)}:\n{done.stderr}")


def is_running(project: str) -> bool:
    """Whether the project has a container that runs (False where no engine answers)."""
    command = ["docker", "ps", "-q", "--filter", f"label=com.docker.compose.project={project}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return False
    return bool(done.stdout.strip())
