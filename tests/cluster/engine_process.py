"""The real engine as a process beside a Slurm of three scripts, for attacks without a cluster."""

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.request_lines import encode_request
from slurm_cluster.hosts import until
from slurm_plugin.base import client
from slurm_plugin.base.protocol import SlotsKeys, Submit
from tests.processes import memory_mb

NODES = 16
SLOTS = [f"gpu:v100.s{i}:1" for i in range(8)]
SITE = """
socket: {folder}/engine.sock
state_dir: {folder}/state
kill_switch: {folder}/off
decision_log: {{path: {folder}/decisions.jsonl}}
enforcement: slots
slurm: {{bin_dir: {folder}/bin}}
nodes: [{{nodes: "dgx[1-16]", topology: dgx1v}}]
partitions: {{default: {{mode: enforce}}}}
"""
COMMANDS = {
    "squeue": "exit 0",
    "scancel": "exit 0",
    "scontrol": """
case "$*" in
  --version) echo slurm 24.11.5 ;;
  "show nodes --json") cat "$(dirname "$0")/nodes.json" ;;
  *jobs*--json*|*--json*job*) echo '{"jobs": [], "last_update": {"set": true, "number": 1}}' ;;
  "show config") echo "SLURM_VERSION = 24.11.5"; echo "SlurmctldHost[0] = ctl" ;;
  *partitions*) echo "PartitionName=batch Default=YES Nodes=dgx[1-16] PriorityTier=1" ;;
esac""",
}


class EngineProcess:
    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.folder, self.process = folder, process
        self.path = folder / "engine.sock"

    def status(self) -> dict[str, object]:
        return client.status(self.path)

    def submitted(self, **keys: object) -> tuple[str, float]:
        """The verb that a submit of two GPUs gets, and the seconds it took."""
        began = time.monotonic()
        verb, _ = client.ask(self.path, encode_request(submit(**keys)), timeout_s=30)
        return verb, time.monotonic() - began

    def memory_mb(self) -> float:
        """The most memory that it ever had."""
        return memory_mb(self.process.pid)

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def log(self) -> str:
        return (self.folder / "engine.log").read_text()


def submit(**keys: object) -> Submit:
    """A submit of two GPUs of one node, with these keys of the slots mode."""
    slots = SlotsKeys(**{"form": "node", "tpn": "gres/gpu:2", "time_s": 60, **keys})
    return Submit(1, 1000, 2, 1, 2, 1, 0, "mallory", "", "batch", "", "", slots)


def connected(port: int, count: int, says: bytes = b"") -> ExitStack:
    """As many connections to a port of this host as it lets in, each of which has said this."""
    clients = ExitStack()
    for _ in range(count):
        client = clients.enter_context(socket.socket())
        client.settimeout(0.2)
        try:
            client.connect(("127.0.0.1", port))
            client.sendall(says)
        except OSError:
            continue  # not let in: no less of an attack
    return clients


@contextmanager
def engine(folder: Path, more: str = "", descriptors: int | None = None) -> Iterator[EngineProcess]:
    """The engine until the block ends; `more` is added to its configuration."""
    commands = folder / "bin"
    commands.mkdir()
    for name, script in COMMANDS.items():
        (commands / name).write_text(f"#!/bin/sh\n{script}\n")
        (commands / name).chmod(0o755)
    nodes = [
        {"name": f"dgx{i}", "state": ["IDLE"], "partitions": ["batch"], "cpus": 400,
         "real_memory": 1 << 20, "gres": ",".join(SLOTS), "gres_used": ""}
        for i in range(1, NODES + 1)
    ]  # fmt: skip
    (commands / "nodes.json").write_text(json.dumps({"nodes": nodes}))
    path = folder / "gputopo.yaml"
    path.write_text(SITE.format(folder=folder) + more)

    def few() -> None:
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    command = [sys.executable, "-c", "from slurm_plugin.cli import main; main()", "serve"]
    with (folder / "engine.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--config", str(path)],
            stderr=log,
            stdout=log,
            env={**os.environ, "NOTIFY_SOCKET": ""},
            preexec_fn=few,
        )
    result = EngineProcess(folder, process)
    try:
        until(lambda: _has_read_slurm(result), result.log, 60)
        yield result
    finally:
        process.terminate()
        try:
            process.wait(15)
        finally:
            process.kill()
            process.wait()


def _has_read_slurm(result: EngineProcess) -> bool:
    assert result.process.poll() is None, result.log()
    try:
        slots = result.status().get("slots")
    except client.EngineDown:
        return False
    return isinstance(slots, dict) and slots.get("looked_s_ago") is not None
