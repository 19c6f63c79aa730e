"""A real engine process of its own, and a client that asks it one line at a time."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

START_S = 60.0
#: Far above any bar: a reply that takes longer stops the benchmark.
REPLY_S = 30.0


class Client:
    """One kept connection; `ask` is what the select plugin does."""

    #: The engine's process, and how long it took from its start to the first answer (seconds).
    pid = 0
    started_s = 0.0
    #: Processor time of the engine's process for the last question (seconds), by whatever thread.
    cpu_s = 0.0

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(REPLY_S)
        self._socket.connect(str(path))

    def ask(self, line: bytes) -> tuple[bytes, float]:
        """The reply line and the seconds from before the write to its last byte."""
        before_s = self._cpu_s()
        start = time.perf_counter()
        self._socket.sendall(line)
        reply = self._socket.recv(65536)
        while not reply.endswith(b"\n"):
            part = self._socket.recv(65536)
            if not part:
                raise ConnectionError("the engine hung up in the middle of a reply")
            reply += part
        took_s = time.perf_counter() - start
        self.cpu_s = self._cpu_s() - before_s
        return reply, took_s

    def _cpu_s(self) -> float:
        """The engine's processor time so far: its process's clock (man 3 clock_getcpuclockid)."""
        return time.clock_gettime(~self.pid << 3 | 2) if self.pid else 0.0

    def await_tables(self) -> None:
        """Wait until the engine has computed ahead what it does between questions."""
        while b'"computing_ahead":%20true' in self.ask(b"status id=1\n")[0]:
            time.sleep(0.2)

    def await_written(self, decisions: int) -> None:
        """Wait until so many decisions are in the log: what replies leave to do is done."""
        while f'"decisions_written":%20{decisions},'.encode() not in self.ask(b"status id=1\n")[0]:
            time.sleep(0.2)

    def memory_bytes(self) -> int:
        """What the engine holds in memory now."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return 1024 * int(status.split("VmRSS:")[1].split()[0])

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def configuration(
    folder: Path, machines: Mapping[str, str], policies: Sequence[str], more: Sequence[str] = ()
) -> Path:
    """A gputopo.yaml in `folder`: host list -> machine; partition `in-NAME` for each policy.

    `more` are lines of it.
    """
    lines = [
        f"socket: {folder / 'engine.sock'}",
        f"decision_log: {{path: {folder / 'decisions.jsonl'}}}",
        f"state_dir: {folder}",
        f"kill_switch: {folder / 'off'}",
        "nodes:",
        *(f'  - {{nodes: "{hosts}", topology: {name}}}' for hosts, name in machines.items()),
        "partitions:",
        "  default: {mode: enforce, policy: mapa}",
        *(f"  in-{policy}: {{mode: enforce, policy: {policy}}}" for policy in policies),
        *more,
    ]
    path = folder / "gputopo.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


@contextmanager
def engine(
    folder: Path,
    machines: Mapping[str, str],
    policies: Sequence[str] = (),
    more: Sequence[str] = (),
) -> Iterator[Client]:
    """An engine for these machines (`configuration`); ended with the block.

    Raises RuntimeError with what it said when it does not come up.
    """
    config = configuration(folder, machines, policies, more)
    log = folder / "engine.log"
    began = time.perf_counter()
    with log.open("wb") as out:
        command = [str(Path(sys.executable).with_name("gputopo")), "serve", "--config", str(config)]
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        client = _connect(folder / "engine.sock", process, log)
        client.ask(b"ping id=1\n")
        client.pid, client.started_s = process.pid, time.perf_counter() - began
        client.await_tables()
        yield client
        client.close()
    finally:
        process.terminate()
        process.wait(timeout=20)


def _connect(path: Path, process: subprocess.Popen[bytes], log: Path) -> Client:
    end = time.monotonic() + START_S
    while True:
        try:
            return Client(path)
        except OSError as error:
            if process.poll() is not None or time.monotonic() > end:
                said = log.read_text()[-2000:]
                raise RuntimeError(f"the engine did not start ({error}): {said}") from error
            time.sleep(0.01)
